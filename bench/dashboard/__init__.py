"""The dashboard and the server's signals on a large store."""
