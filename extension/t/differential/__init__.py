"""The differential check: random tables, random queries, batched against stock."""
