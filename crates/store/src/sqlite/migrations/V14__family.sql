-- Jobs that spawned children and wait for them. They stand in `blocked`, as parts of their batch of their own; an edge with the
-- policy `children` leads to each batch of children.

-- The family of which a slice finalizes the parents: all their children have ended. NULL for jobs that begin.
ALTER TABLE slice ADD COLUMN family INTEGER;
ALTER TABLE held ADD COLUMN family INTEGER;
-- The family that jobs are the parents of, whether they wait for children still or are paused.
ALTER TABLE blocked ADD COLUMN family INTEGER;

-- Families: jobs of a batch that were suspended together. Kept until the batch is deleted.
CREATE TABLE suspension (
    batch_id   INTEGER NOT NULL,
    family     INTEGER NOT NULL,
    on_failure TEXT NOT NULL, -- fail or collect
    positions  TEXT NOT NULL, -- of all of them
    memos      TEXT NOT NULL, -- a JSON array, one memo a position
    PRIMARY KEY (batch_id, family)
) STRICT, WITHOUT ROWID;

-- The batches of their children.
CREATE TABLE child_batch (
    batch_id  INTEGER PRIMARY KEY, -- the children
    parent_id INTEGER NOT NULL,    -- the batch of their parents
    family    INTEGER NOT NULL,
    shares    TEXT NOT NULL,       -- a JSON array: how many are each parent's, in the order of the parents
    parents   TEXT                 -- the positions of the parents, where these are not all of their family
) STRICT;
CREATE INDEX child_batch_parent ON child_batch (parent_id, family);
