"""Removes the crates from an SBOM of cargo-cyclonedx that the program does not contain.

The tool lists what Cargo.lock resolves to with every feature of the dependencies that any crate of the workspace enables.
For example, it lists sqlx-sqlite, although the program uses PostgreSQL only.

  python3 tools/release/prune_sbom.py FILE RESULT
"""

import json
import sys
from pathlib import Path

from program_crates import program_crates


def main():
    bom = json.loads(Path(sys.argv[1]).read_text())
    crates = program_crates()
    bom["components"] = [component for component in bom["components"] if (component["name"], component["version"]) in crates]
    kept = {component["bom-ref"] for component in [bom["metadata"]["component"], *bom["components"]]}
    bom["dependencies"] = [entry for entry in bom["dependencies"] if entry["ref"] in kept]
    for entry in bom["dependencies"]:
        if "dependsOn" in entry:
            entry["dependsOn"] = [reference for reference in entry["dependsOn"] if reference in kept]
    Path(sys.argv[2]).write_text(json.dumps(bom, indent=2) + "\n")


main()
