-- The tags of each batch that has some, packed, for whoever shows or deletes them: an index by batch of tags that each job has
-- a value of its own of cost as much as those themselves.
CREATE TABLE tagged (
    batch_id INTEGER PRIMARY KEY,
    tags     TEXT NOT NULL -- a JSON array of name, value and positions (null where all jobs have it)
) STRICT;
INSERT INTO tagged (batch_id, tags)
SELECT batch_id, json_group_array(json_array(name, value, positions)) FROM tag GROUP BY batch_id;
DROP INDEX tag_batch;
