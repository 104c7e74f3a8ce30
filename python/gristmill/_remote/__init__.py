"""Applications on a server: the operations of its HTTP API, under the names that the native engine has."""
