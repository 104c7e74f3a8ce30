"""The test access method of t/column_source: tables whose batches come from a registered source."""

from pathlib import Path

from server import Server

from . import library

NAME = "column_am"


def build(pg_config: str) -> Path:
    """Its library for this server."""
    return library.build(NAME, pg_config)


def make_default(server: Server, database: str) -> None:
    """New tables of this database are of the access method."""
    server.psql(f"create function {NAME}_handler(internal) returns table_am_handler as '{NAME}' language c; "
                f"create access method {NAME} type table handler {NAME}_handler; "
                f"alter database {database} set default_table_access_method = {NAME}", database)
