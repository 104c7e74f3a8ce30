-- The path from the root of a file that could not be read, by which it is told from another one of its name.
ALTER TABLE source_failure ADD COLUMN place TEXT;
