"""A private PostgreSQL 15, started and ended by the benchmark, or by `server.py VARIABLE COMMAND…`: it runs the command with the
server's URL in the variable."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path(os.environ.get("POSTGRES_BIN", "/usr/lib/postgresql/15/bin"))
# Every answered commit is on disk. The other settings are those of a small server.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
    "lc_messages": "C",
}
START_SECONDS_MAX = 60


def settings(names=("fsync", "synchronous_commit", "shared_buffers")):
    """These settings, as reports name them."""
    return ", ".join(f"`{name} = {SETTINGS[name]}`" for name in names)


class Postgres:
    """A server on a port of loopback, the same for every contender: not every client takes a socket."""

    def __init__(self, folder):
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        self.databases = 0
        self.process = None

    def __enter__(self):
        if not (PROGRAMS / "initdb").exists():
            raise SystemExit(f"there is no PostgreSQL 15 in {PROGRAMS}: apt-get install postgresql-15, or set POSTGRES_BIN")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.data.mkdir(parents=True)
        if os.geteuid() == 0:
            for folder in (self.folder, self.data):
                shutil.chown(folder, "postgres", "postgres")
        self._call("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
        self.port = _free_port()
        settings = {**SETTINGS, "port": self.port, "unix_socket_directories": self.folder}
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as configuration:
            configuration.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self.process = subprocess.Popen(
            self._as_its_user("postgres", "-D", self.data), cwd="/", stdin=subprocess.DEVNULL,
            stdout=open(self.log, "w"), stderr=subprocess.STDOUT, start_new_session=True,
        )
        until = time.monotonic() + START_SECONDS_MAX
        while subprocess.run([str(PROGRAMS / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]).returncode:
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_database(self):
        """The URL of a new, empty database; the one before is dropped."""
        if self.databases:
            self.sql(f"DROP DATABASE bench_{self.databases} WITH (FORCE)")
        self.databases += 1
        self.sql(f"CREATE DATABASE bench_{self.databases}")
        self.sql("CHECKPOINT")
        return f"postgresql://postgres@127.0.0.1:{self.port}/bench_{self.databases}"

    def sql(self, statement, database="postgres"):
        """Runs SQL and returns its rows, each a list of texts."""
        command = [PROGRAMS / "psql", "-XAtq", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port),
                   "-U", "postgres", "-d", database, "-c", statement]
        ended = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(f"`{statement}`: {ended.stderr}")
        return [line.split("\t") for line in ended.stdout.splitlines()]

    def in_database(self, statement):
        """The same in the newest database."""
        return self.sql(statement, f"bench_{self.databases}")

    def commits(self):
        """Waits until all clients have left the newest database, and returns its number of committed transactions."""
        until = time.monotonic() + START_SECONDS_MAX
        while self._statistic("numbackends"):
            if time.monotonic() > until:
                raise RuntimeError("clients of the database do not leave it")
            time.sleep(0.01)
        return self.commits_so_far()

    def commits_so_far(self):
        """The same while clients go on. Their latest commits may be missing."""
        return self._statistic("xact_commit")

    def _statistic(self, name):
        ((value,),) = self.sql(f"SELECT {name} FROM pg_stat_database WHERE datname = 'bench_{self.databases}'")
        return int(value)

    def settle(self):
        """Vacuums and checkpoints the newest database, and waits for the server's own vacuums."""
        self.in_database("VACUUM (ANALYZE)")
        self.sql("CHECKPOINT")
        while self.sql("SELECT count(*) FROM pg_stat_progress_vacuum") != [["0"]]:
            time.sleep(0.1)

    def version(self):
        """`15.13` or so."""
        return re.match(r"[\d.]+", self.sql("SHOW server_version")[0][0]).group()

    def cpu_seconds(self):
        """CPU seconds of the server, including its ended backends."""
        return cpu_seconds_of_tree(self.process.pid)

    def _call(self, *command):
        ended = subprocess.run(self._as_its_user(*command), cwd="/", capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(f"`{command[0]}`: {ended.stderr or ended.stdout}")

    def _as_its_user(self, program, *arguments):
        words = [str(PROGRAMS / program), *map(str, arguments)]
        if os.geteuid() == 0:
            return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", *words]
        return words


def cpu_seconds_of_tree(process_id):
    """CPU seconds of a process, its children and the ended ones that they have waited for."""
    ticks, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        own = int(path.parent.name)
        parents.setdefault(int(fields[1]), []).append(own)
        ticks[own] = sum(int(field) for field in fields[11:15])
    found, left = 0, [process_id]
    while left:
        one = left.pop()
        found += ticks.get(one, 0)
        left += parents.get(one, [])
    return found / os.sysconf("SC_CLK_TCK")


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    variable, *command = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        # The server runs as a user of its own.
        Path(folder).chmod(0o755)
        with Postgres(Path(folder) / "server") as server:
            path = f"{PROGRAMS}:{os.environ['PATH']}"
            environment = {**os.environ, "PATH": path, variable: f"postgresql://postgres@127.0.0.1:{server.port}/postgres"}
            return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
