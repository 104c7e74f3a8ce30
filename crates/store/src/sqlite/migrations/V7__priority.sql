-- A priority that was changed stays with a job that runs or waits for others: negated, NULL for the batch's own.
ALTER TABLE held ADD COLUMN rank INTEGER;
ALTER TABLE blocked ADD COLUMN rank INTEGER;
