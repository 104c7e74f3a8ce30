#!/usr/bin/env python3
"""Builds the extension in a chroot of another Debian or Ubuntu release and runs its own suite there.

    make -C extension test-pg14         Ubuntu jammy's PostgreSQL 14
    make -C extension test-pg16         Ubuntu noble's PostgreSQL 16
    make -C extension test-pg17         Debian trixie's PostgreSQL 17
    make -C extension test-pg18         Debian forky's PostgreSQL 18
    make -C extension test-pg19         PostgreSQL 19 of Debian's experimental, on sid
    t/release_check.py 17 --pairs 1000  also a slice of the differential check in there
    t/release_check.py 17 --regress     also PostgreSQL's own regression suite and isolation specs
    t/release_check.py 18 --bench 'bench-cold WRITE=1'
                                        this target in there, instead of the checks; the bench/RESULTS.md that
                                        it writes takes the place of this tree's

The chroot is made once by debootstrap below the build directory and kept, from the archive that this machine's apt
sources name. For a release of the other distribution, UBUNTU_MIRROR or DEBIAN_MIRROR has to give its archive's address.
Needs root or sudo: the script runs itself again through sudo. The mounts live in a mount namespace of their own and are gone
when the check ends, however it ends.
"""

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from prerequisites import (BUILD_DIRECTORY, EXTENSION_DIRECTORY, MissingPrerequisite, archive_keyring, archive_mirror, as_root,
                           build_directory, debian_packages, run, run_check)
from server import stop_on_signals
from server_build import extension_copy

TREE_INSIDE = "/extension"
RESULTS = "bench/RESULTS.md"
# The keys that sign Ubuntu's releases, which Debian does not ship.
UBUNTU_KEYRING = "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
UBUNTU_KEYRING_SHA256 = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
KEYRING_BYTES_MAX = 1_000_000
# What building and the checks need in the chroot, besides the server itself. PostgreSQL's pg_locale.h
# includes ICU's headers, which its development package does not bring.
TOOLS = ("make", "gcc", "libc6-dev", "libicu-dev", "python3", "python3-venv", "ca-certificates")
NAMESPACE_MARK = "BATCHEXEC_NAMESPACE"


@dataclass(frozen=True)
class Release:
    """A Debian or Ubuntu release. The check makes a chroot of it."""
    name: str
    distribution: str = "Debian"
    # Another suite of the same archive that PostgreSQL comes from.
    more: str = ""

    def bootstrap(self, root: Path) -> None:
        # A distribution's releases share one script; naming it lets an older debootstrap make a newer release.
        mirror = archive_mirror(self.distribution)
        command, scripts = ["debootstrap", "--variant=minbase"], "/usr/share/debootstrap/scripts"
        if self.distribution == "Ubuntu":
            command += ["--components=main,universe", f"--keyring={ubuntu_keyring()}"]
            run([*command, self.name, root, mirror, f"{scripts}/gutsy"])
            self._add_suite(root, f"deb {mirror} {self.name}-updates main universe")
        else:
            run([*command, self.name, root, mirror, f"{scripts}/sid"])
        if self.more:
            self._add_suite(root, f"deb [signed-by={archive_keyring(self.distribution)}] {mirror} {self.more} main")

    @staticmethod
    def _add_suite(root: Path, line: str) -> None:
        with open(root / "etc/apt/sources.list.d/more.list", "a") as suites:
            suites.write(f"{line}\n")


RELEASES = {14: Release("jammy", distribution="Ubuntu"), 16: Release("noble", distribution="Ubuntu"),
            17: Release("trixie"), 18: Release("forky"), 19: Release("sid", more="experimental")}


def ubuntu_keyring() -> Path:
    """The file of the keys that sign Ubuntu's releases; fetched once."""
    folder = build_directory("ubuntu-keyring")
    keyring = folder / "usr/share/keyrings/ubuntu-archive-keyring.gpg"
    if not keyring.exists():
        address = f"{archive_mirror('Ubuntu')}/{UBUNTU_KEYRING}"
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                package = answer.read(KEYRING_BYTES_MAX)
        except OSError as error:
            raise MissingPrerequisite(f"{address}: {error}") from None
        if hashlib.sha256(package).hexdigest() != UBUNTU_KEYRING_SHA256:
            raise MissingPrerequisite(f"{address} has another SHA-256 than {UBUNTU_KEYRING_SHA256}")
        (folder / "keyring.deb").write_bytes(package)
        run(["dpkg-deb", "--extract", folder / "keyring.deb", folder])
    return keyring


def enter_namespace() -> None:
    """Go on as root in a mount namespace of our own; returns only there."""
    if os.environ.get(NAMESPACE_MARK):
        return
    debian_packages("debootstrap", "util-linux")
    command = as_root(["env", f"{NAMESPACE_MARK}=1", f"BATCHEXEC_BUILD_DIR={BUILD_DIRECTORY}",
                       "unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    sys.exit(subprocess.run(command).returncode)


def make_chroot(major: int) -> Path:
    """A chroot with PostgreSQL `major` and its development files; made once."""
    release = RELEASES[major]
    root = build_directory("chroot") / release.name
    stamp = root / "complete"
    packages = [*TOOLS, f"postgresql-{major}", f"postgresql-server-dev-{major}"]
    if stamp.exists() and stamp.read_text() == " ".join(packages):
        return root
    shutil.rmtree(root, ignore_errors=True)
    print(f"making a chroot of {release.name} in {root} (a few minutes)", flush=True)
    release.bootstrap(root)
    # Debian's wrapper would create and start a cluster at installation; the checks make their own.
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    # Mirrors may lag behind a release in development. Signatures are still checked, only not the age.
    (root / "etc/apt/apt.conf.d/90old-mirror").write_text('Acquire::Check-Valid-Until "false";\n')
    mount(root)
    inside(root, ["apt-get", "update", "-q"])
    inside(root, ["apt-get", "install", "-q", "-y", "--no-install-recommends", "postgresql-common"])
    (root / "etc/postgresql-common/createcluster.conf").write_text("create_main_cluster = false\n")
    suite = [f"--target-release={release.more}"] if release.more else []
    inside(root, ["apt-get", "install", "-q", "-y", "--no-install-recommends", *suite, *packages])
    stamp.write_text(" ".join(packages))
    return root


def mount(root: Path) -> None:
    """Mount what a server needs to run in the chroot; harmless when done twice."""
    for kind, place in (("proc", "proc"), ("tmpfs", "dev/shm")):
        (root / place).mkdir(exist_ok=True)
        if not os.path.ismount(root / place):
            run(["mount", "-t", kind, kind, root / place])
    for device in ("null", "zero", "urandom", "random"):
        target = root / "dev" / device
        target.touch()
        if not os.path.ismount(target):
            run(["mount", "--bind", f"/dev/{device}", target])
    # Names and trusted certificates are those of this machine, so that its registries and proxies work.
    for name in ("resolv.conf", "hosts", "ssl/certs/ca-certificates.crt"):
        if Path("/etc", name).exists() and (root / "etc" / name).parent.exists():
            shutil.copy(Path("/etc", name), root / "etc" / name)
    configuration = root / "etc/apt/apt.conf.d"
    for source in Path("/etc/apt/apt.conf.d").glob("*proxy*"):
        shutil.copy(source, configuration / source.name)


def chroot_environment() -> dict:
    kept = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")
            or name in ("PIP_INDEX_URL", "PIP_CERT", "SSL_CERT_FILE")}
    return dict(kept, PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL="C.UTF-8",
                HOME="/root", DEBIAN_FRONTEND="noninteractive")


def inside(root: Path, command: list) -> None:
    """Run a command in the chroot; its failure ends the check."""
    run(["chroot", root, *command], env=chroot_environment())


def shown(root: Path, command: list) -> bool:
    """Run a command in the chroot with its output shown; whether it succeeded."""
    return subprocess.run(["chroot", str(root), *command], env=chroot_environment()).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("major", type=int, choices=RELEASES)
    parser.add_argument("--pairs", type=int, default=0, help="also run so many pairs of the differential check")
    parser.add_argument("--bench", metavar="TARGET", type=shlex.split,
                        help="make a target of bench/targets.mk, with variables, instead of the checks")
    parser.add_argument("--check", metavar="NAME", nargs="+", default=[], help="also other checks: accounting is t/accounting_check.py")
    parser.add_argument("--regress", action="store_true", help="also run PostgreSQL's regression suite and isolation specs")
    options = parser.parse_args()
    stop_on_signals()
    enter_namespace()
    root = make_chroot(options.major)
    mount(root)
    tree = root / TREE_INSIDE.lstrip("/")
    shutil.rmtree(tree, ignore_errors=True)
    shutil.move(extension_copy(f"pg{options.major}"), tree)
    # Bitcode, which JIT alone would use, takes as long again to make.
    make = ["make", "-s", "-C", TREE_INSIDE, "with_llvm=no"]
    steps = {"build": [*make, f"-j{os.cpu_count()}", "all"], "install": [*make, "install"]}
    if options.bench:
        steps["benchmark"] = [*make, *options.bench]
    else:
        steps["own suite"] = [*make, "check"]
        steps["registered sources"] = [f"{TREE_INSIDE}/t/source_check.py", "--pairs=0"]
    for name in options.check:
        steps[name] = [f"{TREE_INSIDE}/t/{name}_check.py"]
    if options.pairs:
        steps["differential"] = [f"{TREE_INSIDE}/t/differential_check.py", f"--pairs={options.pairs}"]
    if options.regress:
        steps["regression suite"] = [f"{TREE_INSIDE}/t/regression_suite.py"]
    passed = 0
    for name, command in steps.items():
        print(f"== PostgreSQL {options.major}: {name}", flush=True)
        if not shown(root, command):
            print(f"FAILED {name}")
            break
        passed += 1
    if options.bench and passed == len(steps):
        shutil.copy(tree / RESULTS, EXTENSION_DIRECTORY / RESULTS)
    print(f"{passed} passed, {len(steps) - passed} failed")
    return 0 if passed == len(steps) else 1


if __name__ == "__main__":
    run_check(main)
