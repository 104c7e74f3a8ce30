"""What the checks need on a Debian machine, and how it gets there.

Every check names its Debian packages, Python packages and source trees here. What is missing is
installed, as root or through sudo; where neither is possible the check ends with one sentence that
says what to install by hand.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CHECKS_DIRECTORY = Path(__file__).resolve().parent
EXTENSION_DIRECTORY = CHECKS_DIRECTORY.parent
LIBRARY_NAME = "pg_batchexec"

# Everything that is fetched or built lands here; git ignores it and `rm -rf` is a full clean-up.
BUILD_DIRECTORY = Path(os.environ.get("BATCHEXEC_BUILD_DIR", CHECKS_DIRECTORY / "build")).resolve()

PSYCOPG_REQUIREMENT = "psycopg[binary]>=3.1,<4"


class MissingPrerequisite(Exception):
    """Something the check needs cannot be had here; the message says what and how to get it."""


def fail(message: str) -> None:
    """End the check with a clear sentence and exit status 2 (not a failed test, but no test)."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def run_check(main: Callable[[], int]) -> None:
    """End with the status that a check returns: 2 where a prerequisite is missing, and 130 after Ctrl-C."""
    try:
        sys.exit(main())
    except MissingPrerequisite as missing:
        fail(str(missing))
    except KeyboardInterrupt:
        sys.exit(130)


def build_directory(name: str = "") -> Path:
    """A folder below the build directory, made if it is not there."""
    folder = BUILD_DIRECTORY / name if name else BUILD_DIRECTORY
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(command: list, **options) -> subprocess.CompletedProcess:
    """Run a command; on failure raise MissingPrerequisite with its last lines of output."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise MissingPrerequisite(
            f"`{' '.join(map(str, command))}` ended with status {done.returncode}:\n{tail}")
    return done


def as_root(command: list) -> list:
    """The command as it has to be written to run as root from here."""
    if os.geteuid() == 0:
        return command
    if shutil.which("sudo"):
        return ["sudo", *command]
    raise MissingPrerequisite(
        f"`{' '.join(map(str, command))}` needs root, and this is neither root nor is sudo installed")


def debian_packages(*names: str) -> None:
    """Make sure that these Debian packages are installed."""
    missing = [name for name in names if not _is_installed(name)]
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise MissingPrerequisite(f"please install by hand (this is no Debian): {', '.join(missing)}")
    print(f"installing Debian packages: {' '.join(missing)}", flush=True)
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    run(as_root([*environment, "apt-get", "update", "-q"]))
    run(as_root([*environment, "apt-get", "install", "-q", "-y", "--no-install-recommends", *missing]))


def _is_installed(name: str) -> bool:
    status = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", name],
                            capture_output=True, text=True)
    return status.stdout == "installed"


def python_environment(*requirements: str) -> Path:
    """A virtual environment below the build directory that holds these PyPI packages.

    Returns the path of its Python.
    """
    environment = build_directory() / "venv"
    python = environment / "bin" / "python3"
    if not python.exists():
        try:
            run([sys.executable, "-m", "venv", "--clear", environment])
        except MissingPrerequisite:
            debian_packages("python3-venv")
            run(["/usr/bin/python3", "-m", "venv", "--clear", environment])
    stamp = environment / "requirements.txt"
    wanted = set(requirements)
    have = set(stamp.read_text().split()) if stamp.exists() else set()
    if not wanted <= have:
        print(f"installing from PyPI: {' '.join(sorted(wanted - have))}", flush=True)
        run([python, "-m", "pip", "install", "--quiet", *sorted(wanted - have)])
        stamp.write_text("\n".join(sorted(wanted | have)) + "\n")
    return python


def inside_python_environment(*requirements: str) -> None:
    """Go on inside the virtual environment: returns only in a Python that has the requirements."""
    if os.environ.get("BATCHEXEC_VENV") == str(BUILD_DIRECTORY):
        return
    try:
        python = python_environment(*requirements)
    except MissingPrerequisite as missing:
        fail(str(missing))
    os.environ["BATCHEXEC_VENV"] = str(BUILD_DIRECTORY)
    os.execv(str(python), [str(python), *sys.argv])


def pg_config_value(pg_config: str, option: str) -> str:
    """One answer of pg_config, for example `--bindir`."""
    try:
        return run([pg_config, option]).stdout.strip()
    except FileNotFoundError:
        raise MissingPrerequisite(
            f"{pg_config} is not installed; apt-get install postgresql-server-dev-15, "
            "or name another with PG_CONFIG") from None


def postgres_major(pg_config: str) -> int:
    """The major version of the PostgreSQL that pg_config speaks for."""
    return int(re.search(r"(\d+)", pg_config_value(pg_config, "--version")).group(1))


def postgres_source(pg_config: str) -> Path:
    """The Debian or Ubuntu source tree of the installed PostgreSQL, patched as its packages are built.

    It is fetched with a private apt configuration, so neither the machine's sources nor its package
    lists change, and root is not needed.
    """
    major = postgres_major(pg_config)
    debian_packages("dpkg-dev", "patch", "xz-utils", "bzip2")
    package = f"postgresql-{major}"
    version = run(["dpkg-query", "-W", "-f", "${source:Version}", package]).stdout.strip()
    tree = build_directory("source") / f"{package}_{version.replace(':', '_')}"
    if (tree / "configure").exists():
        return tree
    print(f"fetching the source of {package} {version}", flush=True)
    apt = _private_apt()
    run([*apt, "update", "-q"])
    download = build_directory("source/download")
    try:
        run([*apt, "source", "--download-only", f"{package}={version}"], cwd=download)
    except MissingPrerequisite:
        version = _other_version(apt, package, version)
        print(f"its source is gone from the archive; taking that of {version}", flush=True)
        tree = tree.with_name(f"{package}_{version.replace(':', '_')}")
        if (tree / "configure").exists():
            return tree
        run([*apt, "source", "--download-only", f"{package}={version}"], cwd=download)
    description = next(download.glob(f"{package}_{version.split(':')[-1]}.dsc"))
    shutil.rmtree(tree, ignore_errors=True)
    run(["dpkg-source", "--no-check", "-x", description, tree])
    return tree


def _other_version(apt: list, package: str, refused: str) -> str:
    """Another source version of the same major release: its tests fit every server of that major.

    Both runs of a comparison use one server and one set of tests, so the minor release of the tests
    does not matter to it.
    """
    listing = run([apt[0].replace("apt-get", "apt-cache"), *apt[1:], "showsrc", package]).stdout
    versions = [found for found in re.findall(r"^Version: (\S+)", listing, re.M) if found != refused]
    if not versions:
        raise MissingPrerequisite(f"the archive has no source of {package} {refused}, nor of another")
    return versions[0]


def _private_apt() -> list:
    root = build_directory("apt")
    for name in ("lists/partial", "cache/archives/partial"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "sources.list").write_text("".join(f"deb-src {line} main\n" for line in _source_suites()))
    settings = {
        "Dir::Etc::sourcelist": root / "sources.list", "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": root / "lists", "Dir::Cache": root / "cache",
        "Debug::NoLocking": "1", "APT::Sandbox::User": "root",
    }
    return ["apt-get", *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]


def _source_suites() -> list:
    """The suites of this machine's apt sources, as apt's lines name them."""
    return [f"[signed-by={archive_keyring(suite.origin)}] {suite.address} {suite.name}" for suite in _apt_suites()]


@dataclass(frozen=True)
class AptSuite:
    """A suite that the machine's apt sources name, such as bookworm-security of Debian."""
    origin: str
    label: str
    address: str
    name: str


# What apt-get tells of each index of packages; a field that the suite's Release file lacks stays as it is written here.
APT_SUITE_FORMAT = "$(ORIGIN)\t$(LABEL)\t$(REPO_URI)\t$(RELEASE)"


def _apt_suites() -> list:
    """The suites of Debian and Ubuntu in this machine's apt sources."""
    if not shutil.which("apt-get"):
        raise MissingPrerequisite("PostgreSQL's source is a package of Debian or Ubuntu, and this machine has no apt-get")
    listing = ["apt-get", "indextargets", "--format", APT_SUITE_FORMAT, "Created-By: Packages"]
    suites = _suites_of_distributions(run(listing).stdout)
    if not suites:
        # The origin is known once the lists have been fetched.
        run(as_root(["apt-get", "update", "-q"]))
        suites = _suites_of_distributions(run(listing).stdout)
    if not suites:
        raise MissingPrerequisite("this machine's apt sources name no suite of Debian or Ubuntu")
    return suites


def _suites_of_distributions(listing: str) -> list:
    suites = {AptSuite(*line.split("\t")): None for line in listing.splitlines() if line.count("\t") == 3}
    return [suite for suite in suites if suite.origin in ("Debian", "Ubuntu")]


def archive_keyring(distribution: str) -> str:
    """The file of the keys that sign the distribution's releases, where its own package puts it."""
    return f"/usr/share/keyrings/{distribution.lower()}-archive-keyring.gpg"


def archive_mirror(distribution: str) -> str:
    """The address of the archive of Debian or Ubuntu that this machine's apt sources name.

    DEBIAN_MIRROR or UBUNTU_MIRROR in the environment names another.
    """
    variable = f"{distribution.upper()}_MIRROR"
    if os.environ.get(variable):
        return os.environ[variable].rstrip("/")
    for suite in _apt_suites():
        # An archive of security updates has a label of its own.
        if suite.origin == suite.label == distribution:
            return suite.address.rstrip("/")
    raise MissingPrerequisite(f"this machine's apt sources name no archive of {distribution}; "
                              f"set {variable} to the address of one")


def main() -> None:
    """What building the extension and its own suite need: `make prerequisites`.

    Nothing is installed where a server's development files are found already.
    """
    if shutil.which("pg_config"):
        found = subprocess.run(["pg_config", "--pgxs", "--includedir-server"], capture_output=True, text=True)
        makefile, headers = (Path(line) for line in found.stdout.splitlines())
        # Debian's client package brings the makefile without the headers.
        if makefile.exists() and (headers / "postgres.h").exists():
            return
    try:
        debian_packages("gcc", "make", "postgresql", "postgresql-server-dev-all")
    except MissingPrerequisite as missing:
        fail(str(missing))


if __name__ == "__main__":
    main()
