-- Queries
/*+ IndexScan(orders) */ SELECT count(*) FROM orders WHERE id > 0;
/*+ IndexOnlyScan(orders) */ SELECT count(*) FROM orders WHERE id > 0;
/*+ BitmapScan(orders) */ SELECT count(*), sum(total) FROM orders WHERE customer_id > 10;
/*+ NoSeqScan(orders) */ SELECT DISTINCT customer_id FROM orders;
/*+ SeqScan(orders) */ SELECT state, count(*) FROM orders WHERE id > 100 GROUP BY state;
/*+ NoHashJoin(o c) */ SELECT count(*) FROM orders o JOIN customers c ON c.id = o.customer_id;
/*+ MergeJoin(o c) */ SELECT c.region, count(*) FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY c.region;
/*+ Leading((c o)) HashJoin(c o) */ SELECT c.region, sum(o.total) FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY
    c.region;
/*+ Rows(o c #10) */ SELECT count(*) FROM orders o JOIN customers c ON c.id = o.customer_id WHERE o.state = 'paid';
/*+ Parallel(orders 2 hard) */ SELECT count(*), sum(total) FROM orders;
/*+ Set(batchexec.enabled off) */ SELECT count(*) FROM orders;
/*+ Set(work_mem '64kB') */ SELECT customer_id, count(*) FROM orders GROUP BY customer_id;
