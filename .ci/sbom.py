"""Lists the parts of a release, as CycloneDX 1.6 JSON: the crates of the program and of the Python package, and the npm packages of
the dashboard.

    python3 .ci/sbom.py FOLDER

Crates are those that `cargo metadata` resolves for Linux from the lock file, and npm packages those of package-lock.json, both
without what only builds and tests need.
"""

import base64
import json
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]
PROGRAMS = ["gristmill", "gristmill-node", "gristmill-python"]


def metadata():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", str(ROOT / "Cargo.toml")]
    command += [option for target in TARGETS for option in ("--filter-platform", target)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(crate["name"], crate["version"]): crate.get("checksum") for crate in lock["package"]}


def built(program):
    """Names and versions of the crates that the program is built from. `cargo metadata` names also the crates that only the
    features of other members of the workspace ask for."""
    command = ["cargo", "tree", "--locked", "--package", program, "--edges", "normal", "--prefix", "none", "--format", "{p}"]
    command += [option for target in TARGETS for option in ("--target", target)]
    lines = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {(line.split()[0], line.split()[1].removeprefix("v")) for line in lines if line}


def shipped(data, root, program):
    """The ids of the crates that end in the program, each with those that it uses itself."""
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    is_built = built(program)
    used = {crate["id"] for crate in data["packages"] if (crate["name"], crate["version"]) in is_built}
    found, left = {}, [root]
    while left:
        crate = left.pop()
        if crate in found:
            continue
        normal = [
            dependency["pkg"]
            for dependency in nodes[crate]["deps"]
            if dependency["pkg"] in used and any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
        found[crate] = sorted(set(normal))
        left += normal
    return found


def component(crate, checksum):
    purl = f"pkg:cargo/{crate['name']}@{crate['version']}"
    described = {"type": "library", "bom-ref": purl, "name": crate["name"], "version": crate["version"], "purl": purl}
    licence = (crate["license"] or "").replace("/", " OR ")
    if not licence:
        sys.exit(f"{crate['name']} {crate['version']} names no licence")
    described["licenses"] = [{"expression": " ".join(licence.split())}]
    if checksum:
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if crate["repository"]:
        described["externalReferences"] = [{"type": "vcs", "url": crate["repository"]}]
    return described


def crates(program):
    data = metadata()
    known = {crate["id"]: crate for crate in data["packages"]}
    roots = [crate["id"] for crate in data["packages"] if crate["name"] == program and crate["source"] is None]
    if len(roots) != 1:
        sys.exit(f"the workspace has {len(roots)} crates of the name {program}")
    uses, sums = shipped(data, roots[0], program), checksums()
    components = {
        crate: component(known[crate], sums.get((known[crate]["name"], known[crate]["version"]))) for crate in uses
    }
    main = components[roots[0]] | {"type": "application"}
    others = sorted((c for crate, c in components.items() if crate != roots[0]), key=lambda c: c["purl"])
    edges = {components[crate]["bom-ref"]: [components[used]["bom-ref"] for used in used_by] for crate, used_by in uses.items()}
    return document(main, others, [{"ref": ref, "dependsOn": sorted(set(used))} for ref, used in sorted(edges.items())])


def npm_component(path, package):
    name = path.rsplit("node_modules/", 1)[-1]
    purl = f"pkg:npm/{name.replace('@', '%40')}@{package['version']}"
    algorithm, _, digest = package["integrity"].partition("-")
    if algorithm != "sha512" or not package.get("license"):
        sys.exit(f"{name} has no SHA-512 or no licence")
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": package["version"],
        "purl": purl,
        "licenses": [{"expression": package["license"]}],
        "hashes": [{"alg": "SHA-512", "content": base64.b64decode(digest).hex()}],
    }


def dashboard(version):
    """The packages that the page is built of; what only builds and tests it is marked in the lock file."""
    lock = json.loads((ROOT / "web/package-lock.json").read_text())
    packages = {path: package for path, package in lock["packages"].items() if path and not package.get("dev")}
    used = sorted((npm_component(path, package) for path, package in packages.items()), key=lambda c: c["purl"])
    ref = f"pkg:npm/gristmill-dashboard@{version}"
    main = {"type": "application", "bom-ref": ref, "name": "gristmill-dashboard", "version": version, "purl": ref}
    return document(main, used, [{"ref": ref, "dependsOn": [c["bom-ref"] for c in used]}])


def document(main, components, dependencies):
    # The same components give the same list.
    content = json.dumps([main["purl"], [c["purl"] for c in components]])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "metadata": {"component": main},
        "components": components,
        "dependencies": dependencies,
    }


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    lists = {name: crates(name) for name in PROGRAMS}
    version = lists["gristmill"]["metadata"]["component"]["version"]
    lists["gristmill-dashboard"] = dashboard(version)
    for name, content in lists.items():
        path = folder / f"{name}.cdx.json"
        path.write_text(json.dumps(content, indent=1) + "\n")
        print(f"{path}: {len(content['components'])} components")


main(Path(sys.argv[1]))
