"""Verifies the files of a release for this architecture: checksums, versions, contents, and the crates in the SBOM.

  python3 tools/release/verify.py DIR
"""

import fnmatch
import json
import os
import stat
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

from program_crates import program_crates

ROOT = Path(__file__).resolve().parents[2]
# cargo-deb adds it.
COPYRIGHT = "usr/share/doc/ipseity/copyright"
failures = []


def claim(text, problems):
    problems = list(problems)
    print(f"  {'FAILED' if problems else 'ok':7} {text}")
    failures.extend(problems)
    for problem in problems:
        print(f"          {problem}")


def run(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def wrong_checksums(out):
    done = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=out, capture_output=True, text=True, check=False)
    if done.returncode:
        yield done.stdout + done.stderr
    listed = {line.split("  ", 1)[1] for line in (out / "SHA256SUMS").read_text().splitlines()}
    existing = {file.name for file in out.iterdir()} - {"SHA256SUMS"}
    yield from (f"SHA256SUMS and the directory differ in {name}" for name in sorted(listed ^ existing))


def files(folder):
    """Every file below a folder, as its path, mode and content."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            found[str(path.relative_to(folder))] = (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
    return found


def assets():
    """The files that the manifest puts into the package, as patterns of their paths with their modes."""
    manifest = tomllib.loads((ROOT / "crates/server/Cargo.toml").read_text())
    for source, destination, mode in manifest["package"]["metadata"]["deb"]["assets"]:
        yield destination + source.rsplit("/", 1)[1] if destination.endswith("/") else destination, int(mode, 8)


def wrong_content(packaged):
    expected = list(assets())
    for pattern, mode in expected:
        names = fnmatch.filter(packaged, pattern)
        if not names:
            yield f"the package lacks {pattern}"
        yield from (f"{name} has the mode {packaged[name][0]:o}" for name in names if packaged[name][0] != mode)
    for name, (_, content) in packaged.items():
        if name != COPYRIGHT and not any(fnmatch.fnmatch(name, pattern) for pattern, _ in expected):
            yield f"the package has {name}, which the manifest does not name"
        if not content:
            yield f"{name} is empty"


def wrong_fields(package, expected):
    for field, value in expected.items():
        if (found := run("dpkg-deb", "--field", package, field)) != value:
            yield f"{field} is {found!r} instead of {value!r}"


def different_crates(bom):
    """The SBOM must list the crates of the program in the versions of Cargo.lock, and name no others as dependencies."""
    expected = program_crates()
    components = [bom["metadata"]["component"], *bom["components"]]
    listed = {(component["name"], component["version"]) for component in components}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    locked = {(package["name"], package["version"]) for package in lock}
    yield from (f"the SBOM lacks {name} {version}" for name, version in sorted(expected - listed))
    yield from (f"the SBOM has {name} {version}, which the program does not contain" for name, version in sorted(listed - expected))
    yield from (f"Cargo.lock lacks {name} {version}" for name, version in sorted(listed - locked))
    references = {component["bom-ref"] for component in components}
    for entry in bom["dependencies"]:
        yield from (f"the SBOM does not describe {reference}" for reference in {entry["ref"], *entry.get("dependsOn", [])} - references)


def main():
    out = Path(sys.argv[1]).resolve()
    version, architecture = run("tools/release/version.sh"), run("dpkg", "--print-architecture")
    package = out / f"ipseity_{version}-1_{architecture}.deb"
    archive = out / f"ipseity-{version}-linux-{architecture}.tar.gz"
    claim("SHA256SUMS has the checksum of every file", wrong_checksums(out))
    if failures:
        sys.exit("failed to verify: the files are not those of SHA256SUMS")
    fields = {"Package": "ipseity", "Version": f"{version}-1", "Architecture": architecture}
    claim("the package has the version and the architecture", wrong_fields(package, fields))
    with tempfile.TemporaryDirectory() as folder:
        run("dpkg-deb", "--extract", package, f"{folder}/package")
        with tarfile.open(archive) as opened:
            opened.extractall(f"{folder}/archive", filter="tar")
        packaged, archived = files(f"{folder}/package"), files(f"{folder}/archive/ipseity-{version}")
        claim("the package has exactly the files of its manifest", wrong_content(packaged))
        names = sorted(name for name in packaged.keys() | archived.keys() if packaged.get(name) != archived.get(name))
        claim("the archive has the files of the package", [f"they differ in {name}" for name in names])
        printed = run(f"{folder}/archive/ipseity-{version}/usr/bin/ipseity", "--version")
        claim("the program prints its version", [] if printed == f"ipseity {version}" else [printed])
    bom = json.loads((out / f"ipseity_{architecture}.cdx.json").read_text())
    claim(f"the SBOM has the {len(bom['components']) + 1} crates of the program", different_crates(bom))
    print(f"release {version} for {architecture}: {len(failures)} problems")
    sys.exit(bool(failures))


main()
