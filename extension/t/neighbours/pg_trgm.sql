CREATE INDEX ON orders USING gin (note gin_trgm_ops);
-- Queries
SELECT count(*) FROM orders WHERE note % 'note 12';
SELECT count(*) FROM orders WHERE note ILIKE '%OTE 3%';
SELECT state, max(similarity(note, 'note 42')) FROM orders GROUP BY state;
SELECT count(*), sum(total) FROM orders WHERE note LIKE '%te 55%';
SELECT DISTINCT note FROM orders WHERE note <-> 'note 42' < 0.3;
SELECT c.region, count(*) FROM customers c JOIN orders o ON o.customer_id = c.id WHERE o.note LIKE '%7%' GROUP BY c.region;
SELECT word_similarity('note', note), count(*) FROM orders GROUP BY 1;
SELECT count(*) FROM customers WHERE name % 'customer 19';
