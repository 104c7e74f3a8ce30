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

-- What is in use of a limit is what is held of its lanes.
ALTER TABLE held ADD COLUMN lane_id INTEGER;
UPDATE held SET lane_id = (SELECT lane_id FROM batch WHERE id = held.batch_id);

-- Pauses, limits, shares and agings. Whoever changes one raises the version.
CREATE TABLE control (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    key        TEXT NOT NULL UNIQUE, -- JSON: effect, scope and reason
    definition TEXT NOT NULL         -- JSON
) STRICT;
INSERT INTO sequence VALUES ('control_version', 0);

-- The buckets of rates. The group is '' where all share one.
CREATE TABLE bucket (
    control_id  INTEGER NOT NULL,
    job_group   TEXT NOT NULL,
    empty_at_ns INTEGER NOT NULL, -- nanoseconds since 1970
    PRIMARY KEY (control_id, job_group)
) STRICT, WITHOUT ROWID;
