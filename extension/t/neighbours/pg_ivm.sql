CREATE TABLE sales (id int PRIMARY KEY, kind text, amount int);
INSERT INTO sales SELECT i, 'kind ' || i % 5, i % 100 FROM generate_series(1, 3000) i;
SELECT pgivm.create_immv('by_kind', 'SELECT kind, count(*) AS sales, sum(amount) AS amount FROM sales GROUP BY kind');
SELECT pgivm.create_immv('large', 'SELECT id, amount FROM sales WHERE amount > 90');
INSERT INTO sales SELECT i, 'kind ' || i % 6, i % 50 FROM generate_series(3001, 4000) i;
DELETE FROM sales WHERE id % 10 = 1;
UPDATE sales SET amount = amount + 1 WHERE kind = 'kind 2';
VACUUM ANALYZE sales;
-- Queries
SELECT kind, sales, amount FROM by_kind;
SELECT count(*), sum(amount) FROM large;
SELECT s.kind, count(*), sum(s.amount), max(b.amount) FROM sales s JOIN by_kind b USING (kind) GROUP BY s.kind;
SELECT (SELECT sum(amount) FROM sales) - (SELECT sum(amount) FROM by_kind);
SELECT count(*) FROM sales WHERE amount > 90 AND id NOT IN (SELECT id FROM large);
SELECT kind, avg(amount) FROM sales GROUP BY kind;
SELECT max(amount), min(id) FROM large WHERE id % 2 = 0;
SELECT count(DISTINCT kind) FROM sales;
