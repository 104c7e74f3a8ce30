-- The positions of the parents that have children in a batch, where it holds what children spawned beside themselves; NULL
-- where these are all of their family.
ALTER TABLE child_batch ADD COLUMN parents TEXT;
