"""Submits within a transaction of the caller's: the jobs are there once it commits, and if it rolls back they never were."""
