-- How long the jobs of a report took, in short: what a history of thousands of reports reads. A table of its own, since
-- a column behind a report's values would be read by way of all of them.
CREATE TABLE report_durations (
    id      INTEGER PRIMARY KEY, -- the report's
    sum_us  INTEGER NOT NULL,    -- of all its jobs together, in microseconds
    buckets TEXT NOT NULL        -- how many jobs took how long: bucket:count, with spaces between
) STRICT;
