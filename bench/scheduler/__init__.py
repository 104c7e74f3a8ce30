"""The benchmark of the scheduler: what is measured, and the report."""
