"""The benchmark of jobs that take real time: what is measured, how each contender is run, and the report."""
