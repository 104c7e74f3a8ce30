#!/usr/bin/env python3
"""A private PostgreSQL server: temporary directory, unix socket only, gone when stopped.

    t/server.py run [options] -- COMMAND      run COMMAND with PGHOST, PGPORT, PGUSER set
    t/server.py start [options]               print the settings as shell assignments
    t/server.py stop DIRECTORY                stop a started server and delete its directory

Options: --preload NAME   a shared_preload_libraries entry (repeat for more)
         --set NAME=VALUE a server setting (repeat for more)

    t/server.py run --preload pg_batchexec -- psql -c 'show batchexec.enabled'

The server listens on a socket in its own directory alone, so no two servers can collide on a port.
PostgreSQL refuses to run as root; started by root, the server runs as the user `postgres`.
"""

import argparse
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from prerequisites import EXTENSION_DIRECTORY, LIBRARY_NAME, MissingPrerequisite, pg_config_value, run, run_check

PORT = 5432  # Names the socket in the private directory; nothing listens on the network.
START_TIMEOUT_S = 60
# Crashes, failed assertions, a sanitizer's report with the first calls of its stack, and what the server says of pins,
# snapshots or memory that nobody gave back.
CRASH_MARKS = re.compile(r"was terminated by signal|PANIC:|TRAP:|server process .* exited with exit code [^01]"
                         r"|WARNING:.* leak|WARNING:.*resource was not closed|detected write past chunk end"
                         r"|could not find block containing chunk|runtime error: |^    #[0-7] 0x[0-9a-f]+ in ")

# What every check wants unless it says otherwise: no durability, no background noise, plain messages.
# synchronous_commit stays on: without it hint bits lag behind, and VACUUM marks no page all-visible.
DEFAULT_SETTINGS = {
    "listen_addresses": "", "fsync": "off", "full_page_writes": "off",
    "autovacuum": "off", "lc_messages": "C", "max_prepared_transactions": "10",
    "log_min_messages": "warning", "log_line_prefix": "%m [%p] %d ",
}


def default_pg_config() -> str:
    return os.environ.get("PG_CONFIG", "pg_config")


def server_account() -> str:
    """The operating-system user the server and its clients run as."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        raise MissingPrerequisite("root cannot run PostgreSQL and there is no user `postgres`; "
                                  "apt-get install postgresql-common, or run as another user") from None


def as_server_account() -> dict:
    """Options for subprocess that run a command as the server's user."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam(server_account())
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def give_to_server_account(path: Path) -> None:
    """Let the server's user write to this folder and what is in it."""
    if os.geteuid() == 0:
        account = pwd.getpwnam(server_account())
        os.chown(path, account.pw_uid, account.pw_gid)
        for below in path.rglob("*"):
            os.chown(below, account.pw_uid, account.pw_gid, follow_symlinks=False)


class Server:
    """A server for one check. Use as a context manager; `environment` holds PGHOST and friends.

    `preload` names libraries for shared_preload_libraries; pg_batchexec is taken from `library`
    (a built .so; by default BATCHEXEC_LIBRARY or the one beside the Makefile), never from what is
    installed, so a check looks at this tree.
    """

    def __init__(self, preload=(), settings=None, pg_config=None, library=None, initdb_options=(), more_libraries=()):
        self.pg_config = pg_config or default_pg_config()
        self.binaries = Path(pg_config_value(self.pg_config, "--bindir"))
        self.preload = list(preload)
        self.settings = dict(DEFAULT_SETTINGS, **(settings or {}))
        self.library = Path(library or os.environ.get("BATCHEXEC_LIBRARY")
                            or EXTENSION_DIRECTORY / f"{LIBRARY_NAME}.so")
        self.initdb_options = list(initdb_options)
        self.more_libraries = [Path(path) for path in more_libraries]
        self.directory = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def environment(self) -> dict:
        return dict(os.environ, PGHOST=str(self.directory), PGPORT=str(PORT),
                    PGUSER=server_account(), PGDATABASE="postgres",
                    PATH=f"{self.binaries}:{os.environ['PATH']}")

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def conninfo(self, database="postgres", **more) -> str:
        words = dict(host=self.directory, port=PORT, user=server_account(), dbname=database, **more)
        return " ".join(f"{key}='{value}'" for key, value in words.items())

    def start(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="batchexec-"))
        try:
            self._prepare()
            self._control("start", "-w", "-t", START_TIMEOUT_S, "-l", self.log)
        except BaseException:
            self._show_log()
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def _prepare(self) -> None:
        (self.directory / "lib").mkdir()
        if self.library.exists():
            # A copy, so that a rebuild in the middle of a run does not swap the code being checked.
            shutil.copy2(self.library, self.directory / "lib" / f"{LIBRARY_NAME}.so")
        for library in self.more_libraries:
            shutil.copy2(library, self.directory / "lib" / library.name)
        give_to_server_account(self.directory)
        run([self.binaries / "initdb", "-D", self.directory / "data", "-A", "trust", "--no-sync",
             "--locale=C", "--encoding=UTF8", "-U", server_account(), *self.initdb_options],
            **as_server_account(), cwd="/")
        settings = dict(self.settings, unix_socket_directories=self.directory, port=PORT,
                        dynamic_library_path=f"{self.directory / 'lib'}:$libdir")
        if self.preload:
            settings["shared_preload_libraries"] = ",".join(self.preload)
        with open(self.directory / "data" / "postgresql.conf", "a") as conf:
            for name, value in settings.items():
                conf.write("{} = '{}'\n".format(name, str(value).replace("'", "''")))

    def stop(self) -> None:
        if self.directory is None:
            return
        try:
            self._control("stop", "-m", "immediate", "-w")
        except MissingPrerequisite:
            pass  # It crashed already; the check reads that from the log.
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory = None

    def restart(self) -> None:
        self._control("restart", "-m", "fast", "-w", "-l", self.log)

    def shut_down(self) -> None:
        """Stop, and keep the database."""
        self._control("stop", "-m", "fast", "-w")

    def _control(self, action, *options) -> None:
        # pg_ctl's child keeps the standard streams open, so nothing may be piped from it.
        command = [self.binaries / "pg_ctl", "-D", self.directory / "data", "-s", action, *options]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                              cwd="/", start_new_session=True, **as_server_account())
        if done.returncode != 0:
            raise MissingPrerequisite(f"pg_ctl {action} failed with status {done.returncode}")

    def _show_log(self) -> None:
        if self.log.exists():
            print("".join(self.log.read_text(errors="replace").splitlines(True)[-20:]), file=sys.stderr)

    def crashes(self) -> list:
        """Lines of the server's log that tell of a crash, a failed assertion or a leaked resource."""
        if not self.log.exists():
            return []
        return [line for line in self.log.read_text(errors="replace").splitlines()
                if CRASH_MARKS.search(line)]

    def psql(self, sql: str, database="postgres", options=()) -> str:
        """Run SQL through psql, stopping at the first error; returns unaligned tuples."""
        done = subprocess.run([str(self.binaries / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1",
                               "-d", database, *options], input=sql, text=True, capture_output=True,
                              env=self.environment, cwd="/", **as_server_account())
        if done.returncode != 0:
            raise RuntimeError(f"psql: {done.stderr.strip()}")
        return done.stdout

    def command(self, words: list, **options) -> subprocess.CompletedProcess:
        """Run a client program as the server's user, with the environment set."""
        environment = dict(self.environment, **options.pop("extra_environment", {}))
        return subprocess.run([str(word) for word in words], env=environment,
                              **as_server_account(), **options)


def stop_on_signals() -> None:
    """Turn SIGTERM and SIGHUP into SystemExit, so that context managers stop their servers."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: sys.exit(128 + got))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["run", "start", "stop"])
    parser.add_argument("--preload", action="append", default=[], metavar="NAME")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings")
    parser.add_argument("directory", nargs="?", help="for stop: what start printed as PGHOST")
    arguments, rest = sys.argv[1:], []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, rest = arguments[:split], arguments[split + 1:]
    options = parser.parse_args(arguments)
    stop_on_signals()
    try:
        settings = dict(setting.split("=", 1) for setting in options.settings)
    except ValueError:
        parser.error("--set takes NAME=VALUE")
    server = Server(preload=options.preload, settings=settings)
    if options.action == "stop":
        if not options.directory or not (Path(options.directory) / "data" / "PG_VERSION").exists():
            parser.error("stop takes the directory that start printed as PGHOST")
        server.directory = Path(options.directory)
        server.stop()
        return 0
    if options.action == "start":
        server.start()
        for name in ("PGHOST", "PGPORT", "PGUSER", "PGDATABASE"):
            print(f"export {name}={shlex.quote(server.environment[name])}")
        return 0
    if not rest:
        parser.error("run takes a command after --")
    with server:
        status = subprocess.run(rest, env=server.environment).returncode
        for line in server.crashes():
            print(f"server log: {line}", file=sys.stderr)
            status = status or 1
    return status


if __name__ == "__main__":
    run_check(main)
