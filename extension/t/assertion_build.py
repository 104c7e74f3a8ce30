"""PostgreSQL built from the Debian source with assertions and memory-context checking on.

Such a server stops at a failed Assert, at a write past an allocation, and clobbers freed memory, so
what stock packages let pass by luck fails here.
"""

import os
import shutil
from pathlib import Path

from prerequisites import (EXTENSION_DIRECTORY, build_directory, debian_packages, postgres_source, run)

CONTRIB_NEEDED = ("pg_visibility", "pg_prewarm", "spi")


def assertion_build(pg_config: str) -> Path:
    """The pg_config of an assertion-enabled PostgreSQL of the same major version; built once."""
    source = postgres_source(pg_config)
    prefix = build_directory("assertion") / source.name
    built = prefix / "bin" / "pg_config"
    stamp = prefix / "complete"
    if stamp.exists():
        return built
    debian_packages("gcc", "make", "pkg-config", "libicu-dev", "bison", "flex", "perl")
    print("building PostgreSQL with assertions (about five minutes on two cores)", flush=True)
    objects = build_directory("assertion") / f"{source.name}-objects"
    shutil.rmtree(objects, ignore_errors=True)
    objects.mkdir(parents=True)
    run([source / "configure", f"--prefix={prefix}", "--enable-cassert", "--enable-debug", "--with-icu",
         "--without-readline", "--without-zlib", "CFLAGS=-O1 -g"], cwd=objects)
    jobs = f"-j{os.cpu_count() or 1}"
    # PostgreSQL's makefiles generate headers only where no other make has started them.
    make = ["env", "-u", "MAKELEVEL", "-u", "MAKEFLAGS", "-u", "MFLAGS", "make", "-s", jobs]
    run([*make, "install"], cwd=objects)
    for module in CONTRIB_NEEDED:
        run([*make, "-C", objects / "contrib" / module, "install"])
    stamp.touch()
    return built


def extension_copy(name: str) -> Path:
    """A copy of the extension's sources alone, to be built for another server without touching this tree."""
    target = build_directory("extension") / name
    shutil.rmtree(target, ignore_errors=True)
    unwanted = shutil.ignore_patterns("*.o", "*.so", "*.bc", "build", "results", "__pycache__",
                                      "regression.*", "output_iso", ".deps")
    shutil.copytree(EXTENSION_DIRECTORY, target, ignore=unwanted)
    return target


def extension_for(pg_config: str, name: str) -> Path:
    """Build and install the extension for another server; returns the tree it was built in."""
    tree = extension_copy(name)
    run(["make", "-s", "-C", tree, f"PG_CONFIG={pg_config}", "all"])
    run(["make", "-s", "-C", tree, f"PG_CONFIG={pg_config}", "install"])
    return tree
