-- A lane is a queue, a kind and a group; the group is '' for jobs without one. (The view that names the table looks it
-- up when it is read.)
CREATE TEMP TABLE lane_before AS SELECT * FROM lane;
DROP TABLE lane;
CREATE TABLE lane (
    id        INTEGER PRIMARY KEY,
    queue     TEXT NOT NULL,
    kind      TEXT NOT NULL,
    job_group TEXT NOT NULL,
    UNIQUE (queue, kind, job_group)
) STRICT;
INSERT INTO lane (id, queue, kind, job_group) SELECT id, queue, kind, '' FROM lane_before;
DROP TABLE lane_before;
