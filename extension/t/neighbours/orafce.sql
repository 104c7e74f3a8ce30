-- Queries
SELECT count(*) FROM orders, oracle.dual;
SELECT state, oracle.nvl(max(note), 'none') FROM orders GROUP BY state;
SELECT oracle.add_months(since, 3), count(*) FROM customers WHERE id < 100 GROUP BY 1;
SELECT oracle.instr(note, '7'), count(*) FROM orders GROUP BY 1;
SELECT sum(oracle.nvl(rating, 0)) FROM customers;
SELECT count(*) FROM orders WHERE oracle.substr(note, 1, 4) = 'note';
SELECT oracle.trunc(placed, 'MM'), count(*) FROM orders GROUP BY 1;
SELECT state, oracle.listagg(note) FROM (SELECT state, note FROM orders WHERE id < 100 ORDER BY id) q GROUP BY state;
