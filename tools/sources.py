"""Reads files from npm and PyPI packages. `npm pack` runs no install script."""

import subprocess
import tarfile
import tempfile
from pathlib import Path

CLDR = "48.2.0"


def npm_file(package: str, path: str) -> bytes:
    """Returns one file of a package, such as ("cldr-core@48.2.0", "supplemental/currencyData.json")."""
    return npm_files(package, [path])[path]


def npm_files(package: str, paths: list[str]) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["npm", "pack", "--silent", package], cwd=directory, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(directory).glob("*.tgz")
        with tarfile.open(archive) as files:
            return {path: files.extractfile(f"package/{path}").read() for path in paths}


def pypi_source(package: str, release: str, directory: Path) -> Path:
    """Unpacks the source package of a release into the directory, once."""
    target = directory / f"{package}-{release}"
    if not target.exists():
        with tempfile.TemporaryDirectory() as download:
            command = ["pip", "download", "--quiet", "--no-deps", "--no-binary", package, f"{package}=={release}"]
            subprocess.run(command, cwd=download, check=True)
            with tarfile.open(next(Path(download).glob("*.tar.gz"))) as files:
                files.extractall(directory, filter="data")
    return target
