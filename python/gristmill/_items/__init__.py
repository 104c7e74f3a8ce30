"""The items of a submit or a map: rows of tables, children of a job, and their progress."""
