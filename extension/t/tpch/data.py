"""The TPC-H tables and queries, for the checks and the benchmark alike."""

from pathlib import Path

from prerequisites import CHECKS_DIRECTORY, build_directory, python_environment, run
from server import Server

TPCHGEN_REQUIREMENT = "tpchgen-cli>=4,<5"
TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
QUERY_NUMBERS = range(1, 23)
SCALE_FACTOR = 0.1
TEMPLATES = CHECKS_DIRECTORY / "tpch"


def query(number: int) -> str:
    """The text of one query, without a closing semicolon."""
    return (TEMPLATES / f"q{number:02}.sql").read_text().strip()


def generated_files(scale_factor: float) -> Path:
    """A folder with one CSV file (with header) a table; generated once a scale factor."""
    folder = build_directory(f"tpch-{scale_factor}")
    if not (folder / "complete").exists():
        generator = python_environment(TPCHGEN_REQUIREMENT).parent / "tpchgen-cli"
        run([generator, "csv", "-s", scale_factor, "-o", folder, "--overwrite", "--quiet"])
        (folder / "complete").touch()
    return folder


def load(server: Server, scale_factor: float = SCALE_FACTOR, database: str = "postgres") -> None:
    """Create, fill, vacuum and analyse the eight tables in the database."""
    server.psql((TEMPLATES / "schema.sql").read_text(), database)
    folder = generated_files(scale_factor)
    # psql reads the files as whoever runs the check, so the server's user needs no access to them.
    for table in TABLES:
        with open(folder / f"{table}.csv") as rows:
            done = server.command([server.binaries / "psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-d", database,
                                   "-c", f"copy {table} from stdin (format csv, header)"],
                                  stdin=rows, cwd="/", capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"loading {table}: {done.stderr.strip()}")
    server.psql((TEMPLATES / "keys.sql").read_text(), database)
    server.psql("vacuum (freeze, analyze)", database)
