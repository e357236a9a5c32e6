"""Files out of npm packages, by `npm pack`: it runs no install script."""

import subprocess
import tarfile
import tempfile
from pathlib import Path

CLDR = "48.2.0"


def npm_file(package: str, path: str) -> bytes:
    """One file of a package, such as ("cldr-core@48.2.0", "supplemental/currencyData.json")."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as files:
            return files.extractfile(f"package/{path}").read()
