SELECT hypopg_create_index('CREATE INDEX ON orders (state)');
SELECT hypopg_create_index('CREATE INDEX ON items (order_id)');
-- Queries
SELECT count(*) FROM orders WHERE state = 'open';
SELECT sum(quantity) FROM items WHERE order_id = 77;
SELECT state, count(*) FROM orders WHERE state IN ('open', 'void') GROUP BY state;
SELECT o.state, sum(i.price) FROM orders o JOIN items i ON i.order_id = o.id WHERE o.id < 500 GROUP BY o.state;
