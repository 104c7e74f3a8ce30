"""Builds what the benchmark of real jobs needs, all of it below the build folder. A peer whose tools are not installed and
cannot be is left out, with a line that says so."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from harness.build import BENCH, Builds, step

READER_PACKAGE = "psycopg[binary]==3.3.9"
# GNU parallel in its unpacked package.
UNPACKED = "usr/bin/parallel"


class RealBuilds(Builds):
    """Paths of the programs, once `make` has built them. `missing` has the peers that are left out, and why."""

    def __init__(self, folder):
        super().__init__(folder)
        self.gristmill = Path(os.environ["GRISTMILL"]).resolve() if "GRISTMILL" in os.environ else self.gristmill
        self.old = Path(os.environ["GRISTMILL_OLD"]).resolve() if "GRISTMILL_OLD" in os.environ else None
        # Itself, where the shell would find a wrapper.
        self.python = sys.executable
        self.reader_python = folder / "real-python/bin/python"
        self.river = folder / "river/river"
        self.graphile = folder / "peers/graphile-worker/peer.mjs"
        self.parallel = None
        self.missing = {}

    def make(self, wanted):
        """Builds those of `gristmill`, `reader`, `parallel`, `River` and `graphile-worker` that are in `wanted`."""
        for program in (self.gristmill if "GRISTMILL" in os.environ else None, self.old):
            if program and not os.access(program, os.X_OK):
                raise SystemExit(f"{program} is no program; GRISTMILL and GRISTMILL_OLD name built ones")
        needs = {"gristmill"} & wanted if "GRISTMILL" not in os.environ else set()
        super().make(needs | ({"node"} if "graphile-worker" in wanted else set()))
        if "reader" in wanted and not self._has_reader():
            step("the reader", sys.executable, "-m", "venv", self.folder / "real-python")
            pip = [self.reader_python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            step("the reader", *pip, READER_PACKAGE)
        for name, build in (("parallel", self._make_parallel), ("River", self._make_river),
                            ("graphile-worker", self._make_graphile)):
            if name in wanted:
                try:
                    build()
                except (SystemExit, OSError, subprocess.CalledProcessError) as error:
                    self.missing[name] = " ".join(str(error).split())
                    print(f"{name} is left out: {self.missing[name]}", file=sys.stderr, flush=True)

    def environment(self):
        """The environment of every contender: the same Python itself, in the place of a wrapper that looks for it."""
        environment = super().environment()
        own = {"PATH": f"{Path(sys.executable).resolve().parent}:{environment['PATH']}", "SHELL": "/bin/sh",
               "PARALLEL_HOME": str(self.folder / "parallel-home"), "PYTHONPATH": str(BENCH / "scripts")}
        return {**environment, **own}

    def versions(self):
        """Versions for the report: a list of (name, version)."""
        ours = [pair for pair in super().versions() if pair[0] in ("Gristmill", "Rust", "Python")] if self._is_own() else [
            ("Gristmill", f"`{self.gristmill.name}`"), ("Python", sys.version.split()[0])]
        found = list(ours)
        if self.parallel:
            words = subprocess.run([self.parallel, "--version"], capture_output=True, text=True, env=self.environment())
            found.append(("GNU parallel", words.stdout.split("\n", 1)[0].split()[-1]))
        river = re.search(r"riverqueue/river v(\S+)", (BENCH / "peers/river/go.mod").read_text()).group(1)
        lock = json.loads((BENCH / "peers/graphile-worker/package-lock.json").read_text())["packages"]
        return [*found, ("River", river), ("graphile-worker", lock["node_modules/graphile-worker"]["version"])]

    def program_digest(self):
        """Tells the programs that are measured from others."""
        programs = [self.gristmill, *([self.old] if self.old else [])]
        return " ".join(hashlib.sha256(program.read_bytes()).hexdigest()[:16] for program in programs)

    def _is_own(self):
        return "GRISTMILL" not in os.environ

    def _has_reader(self):
        if not self.reader_python.exists():
            return False
        return subprocess.run([self.reader_python, "-c", "import psycopg"], capture_output=True).returncode == 0

    def _make_parallel(self):
        """GNU parallel: the system's, or Debian's package, unpacked below the build folder."""
        (self.folder / "parallel-home").mkdir(parents=True, exist_ok=True)
        folder = self.folder / "parallel"
        for program in (shutil.which("parallel"), folder / UNPACKED):
            if program and Path(program).exists():
                words = subprocess.run([program, "--version"], capture_output=True, text=True, env=self.environment())
                if words.stdout.startswith("GNU parallel"):
                    self.parallel = Path(program)
                    return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        step("GNU parallel", "apt-get", "download", "--quiet=2", "parallel", cwd=folder)
        (package,) = folder.glob("parallel_*.deb")
        step("GNU parallel", "dpkg-deb", "--extract", package, folder)
        self.parallel = folder / UNPACKED

    def _make_river(self):
        step("River", "go", "build", "-o", self.river, ".", cwd=BENCH / "peers/river")

    def _make_graphile(self):
        folder = self.graphile.parent
        shutil.copytree(BENCH / "peers/graphile-worker", folder, dirs_exist_ok=True)
        shutil.copyfile(BENCH / "peers/node_order.mjs", folder.parent / "node_order.mjs")
        installed, lock = folder / "installed-lock.json", (folder / "package-lock.json").read_bytes()
        if not installed.exists() or installed.read_bytes() != lock:
            npm = [self.node_folder / "npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
            step("graphile-worker", *npm, cwd=folder, env=self.environment())
            installed.write_bytes(lock)
