CREATE TABLE embeddings (id int, label text, value vector(3));
INSERT INTO embeddings SELECT i, 'label ' || i % 5, ARRAY[i % 10, i % 7, i % 3]::vector FROM generate_series(1, 4000) i;
CREATE INDEX ON embeddings USING hnsw (value vector_l2_ops);
VACUUM (ANALYZE, FREEZE) embeddings;
-- Queries
SELECT label, count(*), avg(value) FROM embeddings GROUP BY label;
SELECT count(*) FROM embeddings WHERE value <-> '[1,2,3]' < 4;
SELECT label, min(value <-> '[1,2,3]') FROM embeddings GROUP BY label;
SELECT sum(vector_norm(value)) FROM embeddings WHERE id % 3 = 0;
SELECT label, count(*) FROM embeddings WHERE value = '[1,1,1]' GROUP BY label;
SELECT value <-> '[3,3,2]' FROM embeddings ORDER BY value <-> '[3,3,2]' LIMIT 3;
SELECT e.label, count(*) FROM embeddings e JOIN orders o ON o.id = e.id GROUP BY e.label;
SELECT DISTINCT label, value FROM embeddings WHERE id < 30;
