-- How long the jobs of a report took, in short: what a history of thousands of reports reads.
ALTER TABLE gristmill.report
    ADD COLUMN durations_sum_us bigint, -- of all its jobs together, in microseconds; NULL where none completed
    ADD COLUMN duration_buckets text;   -- how many jobs took how long: bucket:count, with spaces between
-- Reports are added in the order of time, or nearly.
CREATE INDEX report_finished ON gristmill.report USING brin (finished_at);
