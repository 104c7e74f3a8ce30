"""PostgreSQL built from the Debian source so that what stock packages let pass by luck fails, and checks on it.

The server of ASSERTIONS stops at a failed Assert, at a write past an allocation, and clobbers freed
memory. That of SANITIZERS, which has these assertions too, also stops at the first access to memory
that is not to be accessed, and at undefined behaviour.
"""

import argparse
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prerequisites import (CHECKS_DIRECTORY, EXTENSION_DIRECTORY, LIBRARY_NAME, MissingPrerequisite, build_directory,
                           debian_packages, postgres_source, run)

CONTRIB_NEEDED = ("pg_visibility", "pg_prewarm", "spi")
PAIRS_DEFAULT = 2000
SANITIZERS_FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"


@dataclass(frozen=True)
class Build:
    """How a server and its extension are built. `extension_variables` are those of the extension's makefile."""
    name: str
    minutes: int
    configure_words: tuple
    extension_variables: tuple = ()


ASSERTIONS = Build("assertion", 5, ("CFLAGS=-O1 -g",))
# Where the server tells valgrind of its allocations and buffers, it tells the sanitizer: see sanitizer/valgrind/memcheck.h.
SANITIZERS = Build(
    "sanitizer", 15,
    (f"CFLAGS=-O1 -g {SANITIZERS_FLAGS}", f"LDFLAGS={SANITIZERS_FLAGS}",
     f"CPPFLAGS=-DUSE_VALGRIND -I{CHECKS_DIRECTORY / 'sanitizer'}"),
    # Overflow of signed numbers is checked as well: the extension does not rely on -fwrapv. With -O1 in place of -O3,
    # fewer accesses are optimised away.
    ("PG_CFLAGS=$(C_STANDARD) -Wall -fno-wrapv -fsanitize=float-cast-overflow -fno-sanitize-recover=all",))


def server_build(build: Build, pg_config: str) -> Path:
    """The pg_config of a PostgreSQL of the same major version that is built so; built once."""
    source = postgres_source(pg_config)
    prefix = build_directory(build.name) / source.name
    # Debian's makefiles would install libraries over those of its packages.
    if "postgres" not in str(prefix):
        raise MissingPrerequisite(f"\"postgres\" has to be in the prefix, {prefix}")
    built = prefix / "bin" / "pg_config"
    stamp = prefix / "complete"
    words = [f"--prefix={prefix}", "--enable-cassert", "--enable-debug", "--with-icu", "--without-readline",
             "--without-zlib", *build.configure_words]
    if stamp.exists() and stamp.read_text() == " ".join(words):
        return built
    debian_packages("gcc", "make", "pkg-config", "libicu-dev", "bison", "flex", "perl")
    print(f"building PostgreSQL for the {build.name} build (about {build.minutes} minutes on two cores)", flush=True)
    objects = build_directory(build.name) / f"{source.name}-objects"
    for folder in (prefix, objects):
        shutil.rmtree(folder, ignore_errors=True)
    objects.mkdir(parents=True)
    run([source / "configure", *words], cwd=objects)
    jobs = f"-j{os.cpu_count() or 1}"
    # PostgreSQL's makefiles generate headers only where no other make has started them.
    make = ["env", "-u", "MAKELEVEL", "-u", "MAKEFLAGS", "-u", "MFLAGS", "make", "-s", jobs]
    run([*make, "install"], cwd=objects)
    for module in CONTRIB_NEEDED:
        run([*make, "-C", objects / "contrib" / module, "install"])
    stamp.write_text(" ".join(words))
    return built


def extension_copy(name: str) -> Path:
    """A copy of the extension's sources alone, to be built for another server without touching this tree."""
    target = build_directory("extension") / name
    shutil.rmtree(target, ignore_errors=True)
    unwanted = shutil.ignore_patterns("*.o", "*.so", "*.bc", "build", "results", "__pycache__",
                                      "regression.*", "output_iso", ".deps")
    shutil.copytree(EXTENSION_DIRECTORY, target, ignore=unwanted)
    return target


def extension_for(pg_config: str, build: Build) -> Path:
    """Build and install the extension for that server; returns the tree it was built in."""
    tree = extension_copy(build.name)
    jobs = f"-j{os.cpu_count() or 1}"
    make = ["env", "-u", "MAKEFLAGS", "make", "-s", "-C", tree, f"PG_CONFIG={pg_config}", *build.extension_variables]
    run([*make, jobs, "all"])
    run([*make, "install"])
    return tree


def module_library(source: Path, name: str, pg_config: str, variables: tuple = ()) -> Path:
    """Build a library of the checks from its folder, for this server; returns where it lies."""
    environment = {variable: value for variable, value in os.environ.items()
                   if variable not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    make = ["make", "-s", "-C", source, f"PG_CONFIG={pg_config}", *variables]
    run([*make, "clean"], env=environment)
    run([*make, f"{name}.so"], env=environment)
    library = build_directory(name) / f"{name}.so"
    (source / library.name).replace(library)
    run([*make, "clean"], env=environment)
    return library


class BuildCheck:
    """Runs checks on a server of the build, one after the other. `complaints` finds what a check itself does not."""

    def __init__(self, build: Build, stock_pg_config: str, complaints: Callable[[], list] = list):
        self.build = build
        self.complaints = complaints
        self.pg_config = str(server_build(build, stock_pg_config))
        self.tree = extension_for(self.pg_config, build)
        self.environment = dict(os.environ, PG_CONFIG=self.pg_config,
                                BATCHEXEC_LIBRARY=str(self.tree / f"{LIBRARY_NAME}.so"))
        # -j of an outer make must not reach the inner one, which would run two servers' suites at once.
        self.environment.pop("MAKEFLAGS", None)

    def own_suite(self) -> list:
        return ["make", "-C", self.tree, f"PG_CONFIG={self.pg_config}", "check"]

    def run(self, steps: dict) -> int:
        """Run commands and functions that return a status, and print which fail; returns the check's status."""
        failed = []
        for name, command in steps.items():
            print(f"== {name}, on the {self.build.name} build", flush=True)
            if callable(command):
                status = command()
            else:
                status = subprocess.run([str(word) for word in command], env=self.environment).returncode
            complaints = self.complaints()
            for complaint in complaints:
                print(complaint, flush=True)
            if status != 0 or complaints:
                failed.append(name)
        for name in failed:
            print(f"FAILED {name}")
        print(f"{len(steps) - len(failed)} passed, {len(failed)} failed")
        return 1 if failed else 0


def parse_options(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=PAIRS_DEFAULT, help="of the differential check")
    parser.add_argument("--seed", type=int, help="of the differential check")
    return parser.parse_args()


def differential(options: argparse.Namespace) -> list:
    """The command of a slice of the differential check."""
    seed = [] if options.seed is None else [f"--seed={options.seed}"]
    return [CHECKS_DIRECTORY / "differential_check.py", f"--pairs={options.pairs}", *seed]
