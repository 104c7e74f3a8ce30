"""The items of a submit or a map: rows of tables, and how far they are."""
