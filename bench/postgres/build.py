"""Builds the peers on PostgreSQL below the build folder, and names their versions."""

import json
import re
import shutil
import sys

from harness.build import BENCH, ROOT, Builds, step

PYTHON_PACKAGES = ("pgmq==1.1.4", "pgqueuer==1.6.0", "asyncpg==0.32.0", "psycopg[binary]==3.3.9", "uvloop==0.23.0")
NODE_PEERS = ("graphile-worker", "pg-boss")


class PostgresBuilds(Builds):
    """Paths of the programs, once `make` has built them."""

    def __init__(self, folder):
        super().__init__(folder)
        self.peers = folder / "peers"
        self.peer_python = folder / "peers-python/bin/python"
        self.river = folder / "river/river"
        self.deno = ROOT / "build/tools/bin/deno"

    def make(self, wanted):
        """Builds those of `gristmill`, `driver`, `peers`, `node` and `deno` that are in `wanted`."""
        super().make(wanted - {"peers", "deno"} | ({"node"} if "peers" in wanted else set()))
        if "deno" in wanted and not self.deno.exists():
            step("Deno", ROOT / "crates/runtime/scripts/install-runtimes.sh")
        if "peers" in wanted:
            self._make_peers()

    def environment(self):
        """The environment of every contender: this Node before the system's, and Deno."""
        environment = super().environment()
        return {**environment, "PATH": f"{self.deno.parent}:{environment['PATH']}"}

    def peer(self, name):
        """The command of a peer's driver, without its order."""
        if name == "River":
            return [self.river]
        if name in ("pgmq", "PgQueuer"):
            return [self.peer_python, self.peers / name.lower() / "peer.py"]
        return [self.node, self.peers / name / "peer.mjs"]

    def versions(self):
        """Versions for the report: a list of (name, version)."""
        ours = [pair for pair in super().versions() if pair[0] in ("Gristmill", "Rust", "Python", "Node")]
        package = lambda peer: json.loads((BENCH / f"peers/{peer}/package-lock.json").read_text())["packages"][
            f"node_modules/{peer}"]["version"]
        river = re.search(r"riverqueue/river v(\S+)", (BENCH / "peers/river/go.mod").read_text()).group(1)
        pinned = dict(name.split("==") for name in PYTHON_PACKAGES)
        return [
            *ours, ("pgmq", f"the SQL of its Python package {pinned['pgmq']}"), ("PgQueuer", pinned["pgqueuer"]),
            ("River", river), *((peer, package(peer)) for peer in NODE_PEERS),
        ]

    def _make_peers(self):
        if not self.peer_python.exists():
            step("the Python peers", sys.executable, "-m", "venv", self.folder / "peers-python")
        step("the Python peers", self.peer_python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PYTHON_PACKAGES)
        self.peers.mkdir(parents=True, exist_ok=True)
        for shared in ("python_order.py", "node_order.mjs"):
            shutil.copyfile(BENCH / "peers" / shared, self.peers / shared)
        for name in ("pgmq", "pgqueuer", *NODE_PEERS):
            shutil.copytree(BENCH / "peers" / name, self.peers / name, dirs_exist_ok=True)
        for name in NODE_PEERS:
            folder, installed = self.peers / name, self.peers / name / "installed-lock.json"
            lock = (folder / "package-lock.json").read_bytes()
            if not installed.exists() or installed.read_bytes() != lock:
                npm = [self.node_folder / "npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
                step(name, *npm, cwd=folder, env=self.environment())
                installed.write_bytes(lock)
        step("River", "go", "build", "-o", self.river, ".", cwd=BENCH / "peers/river")

