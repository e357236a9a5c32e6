"""Writes the tables of crates/geo/src/tables from CLDR and ISO 3166-2.

Usage: python3 tools/tables.py (needs npm and tools/requirements.txt)
"""

import datetime
import json
from importlib.metadata import version
from pathlib import Path

import pycountry

from sources import CLDR, npm_file

TABLES = Path(__file__).resolve().parent.parent / "crates/geo/src/tables"
TODAY = datetime.date.today().isoformat()


def main() -> None:
    cldr = f"CLDR {CLDR} (Unicode-3.0)"
    write("currencies.txt", "A currency and the countries whose legal tender it is today.", cldr, currencies())
    write("zones.txt", "A time zone's canonical name and its legacy names.", cldr, zones())
    iso = f"ISO 3166-2, by pycountry {version('pycountry')}"
    write("subdivisions.txt", "The codes of ISO 3166-2, sorted, a country a line.", iso, subdivisions())


def write(name: str, meaning: str, source: str, lines: list[str]) -> None:
    head = [f"# {meaning}", f"# Source: {source}. Written on {TODAY} by tools/tables.py; do not edit."]
    (TABLES / name).write_text("\n".join(head + lines) + "\n", encoding="utf-8")


def currencies() -> list[str]:
    data = json.loads(npm_file(f"cldr-core@{CLDR}", "supplemental/currencyData.json"))
    countries_of = {}
    for country, history in sorted(data["supplemental"]["currencyData"]["region"].items()):
        current = [code for entry in history for code, life in entry.items() if is_tender(life)]
        # Of several, the country's own: LSL rather than ZAR for LS. Else CLDR's first: ILS for PS.
        current.sort(key=lambda code: not code.startswith(country))
        if current:
            countries_of.setdefault(current[0], []).append(country)
    return grouped(countries_of)


def is_tender(life: dict) -> bool:
    return life.get("_tender") != "false" and life.get("_from", "") <= TODAY <= life.get("_to", "9999")


def zones() -> list[str]:
    data = json.loads(npm_file(f"cldr-bcp47@{CLDR}", "bcp47/timezone.json"))
    legacy_of = {}
    for zone in data["keyword"]["u"]["tz"].values():
        names = zone.get("_alias", "").split() if isinstance(zone, dict) else []
        # The first is the name that CLDR froze; `_iana` stands beside it where the tz database has moved on.
        canonical = zone.get("_iana", names[0]) if names else None
        legacy = sorted(name for name in names if name != canonical)
        # Etc/Unknown is CLDR's own and no zone of the tz database.
        if legacy and canonical != "Etc/Unknown":
            legacy_of[canonical] = legacy
    return grouped(legacy_of)


def subdivisions() -> list[str]:
    codes_of = {}
    for code in sorted(subdivision.code for subdivision in pycountry.subdivisions):
        codes_of.setdefault(code[:2], []).append(code)
    return [" ".join(codes) for codes in codes_of.values()]


def grouped(members_of: dict[str, list[str]]) -> list[str]:
    return [" ".join([head, *members]) for head, members in sorted(members_of.items())]


if __name__ == "__main__":
    main()
