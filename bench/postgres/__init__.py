"""The benchmark on PostgreSQL: the server, the builds, the contenders, the rows and the report."""
