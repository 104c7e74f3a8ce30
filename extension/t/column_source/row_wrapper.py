"""The test foreign data wrapper of t/column_source: foreign tables with the rows of local ones."""

from pathlib import Path

from prerequisites import CHECKS_DIRECTORY
from server import Server
from server_build import module_library

NAME = "row_wrapper"
SETUP = CHECKS_DIRECTORY / "column_source" / f"{NAME}.sql"


def build(pg_config: str) -> Path:
    """Its library for this server."""
    return module_library(CHECKS_DIRECTORY / "column_source", NAME, pg_config)


def install(server: Server, database: str) -> None:
    """The wrapper, its server and make_foreign() in a database."""
    server.psql(SETUP.read_text(), database)
