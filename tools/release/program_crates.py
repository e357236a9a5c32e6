"""Which crates the program contains."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def program_crates():
    """Name and version of every crate that a release build for this target uses, also at build time, but not in tests."""
    about = subprocess.run(["rustc", "-vV"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    target = re.search(r"^host: (.*)$", about, re.MULTILINE)[1]
    command = ["cargo", "tree", "--quiet", "--locked", "-p", "ipseity-server", "--target", target, "--edges", "normal,build"]
    command += ["--prefix", "none", "--format", "{p}"]
    tree = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    crates = (line.split() for line in tree.splitlines() if line)
    return {(name, version.removeprefix("v")) for name, version, *_ in crates}
