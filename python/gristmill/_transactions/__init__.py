"""Submits within a transaction of the caller: the jobs exist once it commits; after a rollback they never existed."""
