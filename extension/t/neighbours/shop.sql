CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, region text, since date, rating numeric(4,2));
INSERT INTO customers SELECT i, 'customer ' || i, (ARRAY['north','south','east','west'])[i % 4 + 1], date '2015-01-01' + i % 3000,
    CASE WHEN i % 9 > 0 THEN i % 500 / 100.0 END FROM generate_series(1, 2000) i;
CREATE TABLE orders (id int PRIMARY KEY, customer_id int NOT NULL, placed timestamp NOT NULL, state text NOT NULL, total
    numeric(10,2), note text);
INSERT INTO orders SELECT i, i * 7 % 2000 + 1, timestamp '2024-01-01' + i * interval '17 minutes',
    (ARRAY['open','paid','sent','void'])[i % 4 + 1],
    i % 1000 / 8.0, CASE WHEN i % 5 = 0 THEN 'note ' || i % 77 END FROM generate_series(1, 20000) i;
CREATE INDEX orders_customer ON orders (customer_id);
CREATE TABLE items (order_id int NOT NULL, line int NOT NULL, product text NOT NULL, quantity int, price double precision, shipped
    boolean);
INSERT INTO items SELECT i / 3 + 1, i % 3, 'product ' || i % 211, i % 12, i % 97 / 4.0, CASE WHEN i % 8 > 0 THEN i % 3 = 0 END
    FROM generate_series(0, 59999) i;
VACUUM (ANALYZE, FREEZE) customers, orders, items;
-- Queries
SELECT count(*) FROM orders;
SELECT state, count(*), sum(total), avg(total) FROM orders GROUP BY state;
SELECT date_trunc('month', placed) AS month, count(*), max(total) FROM orders WHERE state <> 'void' GROUP BY 1;
SELECT region, count(*), avg(rating), min(since), max(since) FROM customers GROUP BY region HAVING count(*) > 10;
SELECT c.region, o.state, count(*), sum(o.total) FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY 1, 2;
SELECT product, sum(quantity * price), count(*) FILTER (WHERE shipped) FROM items GROUP BY product ORDER BY 2 DESC, 1 LIMIT 10;
SELECT count(*) FROM orders o WHERE EXISTS (SELECT FROM items i WHERE i.order_id = o.id AND i.quantity > 10);
SELECT count(*) FROM customers c WHERE NOT EXISTS (SELECT FROM orders o WHERE o.customer_id = c.id AND o.state = 'open');
SELECT id, total FROM orders WHERE note LIKE 'note 7%' AND total > 100;
SELECT c.name, count(o.id) FROM customers c LEFT JOIN orders o ON o.customer_id = c.id AND o.total > 120 GROUP BY c.name HAVING
    count(o.id) > 2;
SELECT count(DISTINCT customer_id), count(DISTINCT state) FROM orders;
SELECT DISTINCT region, extract(year FROM since) FROM customers WHERE rating IS NOT NULL;
SELECT region, extract(year FROM since)::int, count(*) FROM customers GROUP BY ROLLUP (1, 2);
SELECT id, total FROM orders ORDER BY total DESC, id LIMIT 5;
WITH paid AS MATERIALIZED (SELECT customer_id, sum(total) AS total FROM orders WHERE state = 'paid' GROUP BY 1) SELECT count(*),
    max(total) FROM paid WHERE total > 300;
SELECT id FROM orders WHERE total > (SELECT avg(total) * 1.99 FROM orders);
SELECT o.state, count(*), sum(i.quantity) FROM items i JOIN orders o ON o.id = i.order_id WHERE i.price BETWEEN 5 AND 9 GROUP BY
    o.state;
SELECT customer_id, total, rank() OVER (PARTITION BY customer_id ORDER BY total DESC, id) FROM orders WHERE state = 'sent' AND
    customer_id < 50;
SELECT state, string_agg(note, ',' ORDER BY id) FROM orders WHERE id < 300 GROUP BY state;
SELECT 100 / (total - 1) FROM orders WHERE id < 2000 AND state = 'open' AND total > 1;
