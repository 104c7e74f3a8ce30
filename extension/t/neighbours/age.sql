SET search_path = ag_catalog, "$user", public;
SELECT create_graph('people');
SELECT * FROM cypher('people', $$ UNWIND range(1, 300) AS i CREATE (:Person {id: i, age: i % 50}) $$) AS (v agtype);
SELECT * FROM cypher('people', $$ MATCH (a:Person), (b:Person) WHERE b.id = a.id + 1 CREATE (a)-[:KNOWS {since: a.age}]->(b) $$)
    AS (e agtype);
ANALYZE;
-- Queries
SELECT * FROM cypher('people', $$ MATCH (a:Person) RETURN count(a) $$) AS (n agtype);
SELECT * FROM cypher('people', $$ MATCH (a:Person) WHERE a.age > 30 RETURN a.age, count(*) $$) AS (age agtype, n agtype);
SELECT * FROM cypher('people', $$ MATCH (a:Person)-[k:KNOWS]->(b:Person) WHERE k.since < 5 RETURN a.id, b.id $$) AS (a agtype, b
    agtype);
SELECT * FROM cypher('people', $$ MATCH (a:Person)-[:KNOWS]->(b)-[:KNOWS]->(c) RETURN count(*) $$) AS (n agtype);
SELECT count(*), count(DISTINCT start_id) FROM people."KNOWS";
SELECT p.n, o.state FROM cypher('people', $$ MATCH (a:Person) RETURN a.id $$) AS p(n agtype) JOIN orders o ON o.id = p.n::int
    WHERE o.id < 20;
