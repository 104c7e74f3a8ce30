"""The test access method of t/column_source: tables whose batches come from a registered source."""

import os
from pathlib import Path

from prerequisites import CHECKS_DIRECTORY, build_directory, run
from server import Server

NAME = "column_am"


def build(pg_config: str) -> Path:
    """Its library for this server."""
    source = CHECKS_DIRECTORY / "column_source"
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    run(["make", "-s", "-C", source, "clean", f"PG_CONFIG={pg_config}"], env=environment)
    run(["make", "-s", "-C", source, f"PG_CONFIG={pg_config}"], env=environment)
    library = build_directory(NAME) / f"{NAME}.so"
    (source / library.name).replace(library)
    run(["make", "-s", "-C", source, "clean", f"PG_CONFIG={pg_config}"], env=environment)
    return library


def make_default(server: Server, database: str) -> None:
    """New tables of this database are of the access method."""
    server.psql(f"create function {NAME}_handler(internal) returns table_am_handler as '{NAME}' language c; "
                f"create access method {NAME} type table handler {NAME}_handler; "
                f"alter database {database} set default_table_access_method = {NAME}", database)
