"""How the libraries of t/column_source are built."""

import os
from pathlib import Path

from prerequisites import CHECKS_DIRECTORY, build_directory, run


def build(name: str, pg_config: str) -> Path:
    """One of the libraries, for this server."""
    source = CHECKS_DIRECTORY / "column_source"
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    run(["make", "-s", "-C", source, "clean", f"PG_CONFIG={pg_config}"], env=environment)
    run(["make", "-s", "-C", source, f"{name}.so", f"PG_CONFIG={pg_config}"], env=environment)
    library = build_directory(name) / f"{name}.so"
    (source / library.name).replace(library)
    run(["make", "-s", "-C", source, "clean", f"PG_CONFIG={pg_config}"], env=environment)
    return library
