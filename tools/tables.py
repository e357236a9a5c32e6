"""Generates the tables in crates/geo/src/tables from CLDR and ISO 3166.

Usage: python3 tools/tables.py (needs npm and tools/requirements.txt)
"""

import datetime
import functools
import json
import re
import unicodedata
from collections import Counter
from difflib import SequenceMatcher
from importlib.metadata import version
from pathlib import Path

import pycountry

from sources import CLDR, npm_file

TABLES = Path(__file__).resolve().parent.parent / "crates/geo/src/tables"
TODAY = datetime.date.today().isoformat()
# CLDR's territory groups and their two-letter continent codes. Antarctica is in no group.
CONTINENTS = {"002": "AF", "142": "AS", "150": "EU", "021": "NA", "013": "NA", "029": "NA", "005": "SA", "009": "OC"}
# Words for kinds of regions. crates/geo/src/enrich.rs has the same list.
KINDS = """autonomous community county department district division governorate krai kray oblast of okrug parish prefecture
province region republic state territory the""".split()
# Parts of ISO 3166-2's type names that mean a town.
TOWNS = ["city", "municipality", "capital", "town"]
# Letters that Unicode does not decompose. crates/geo/src/enrich.rs folds in the same way.
LETTERS = {"æ": "ae", "œ": "oe", "ß": "ss", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l", "ı": "i", "ə": "e"}


def main() -> None:
    cldr = f"CLDR {CLDR} (Unicode-3.0)"
    write("countries.txt", "A country, its continent and its English name.", cldr, countries())
    write("currencies.txt", "A currency and the countries where it is legal tender.", cldr, currencies())
    write("zones.txt", "A time zone's canonical name and its legacy names.", cldr, zones())
    iso = f"ISO 3166-2, by pycountry {version('pycountry')}"
    write("subdivisions.txt", "ISO 3166-2 codes, sorted, one line per country.", iso, subdivisions())
    meaning = "An ISO 3166-2 code and its unique folded name; ~ marks a name without the word for its kind."
    write("regions.txt", meaning, f"{cldr}; {iso}", regions())


def write(name: str, meaning: str, source: str, lines: list[str]) -> None:
    head = [f"# {meaning}", f"# Source: {source}. Generated on {TODAY} by tools/tables.py; do not edit."]
    (TABLES / name).write_text("\n".join(head + lines) + "\n", encoding="utf-8")


def countries() -> list[str]:
    data = json.loads(npm_file(f"cldr-localenames-full@{CLDR}", "main/en/territories.json"))
    names = data["main"]["en"]["localeDisplayNames"]["territories"]
    data = json.loads(npm_file(f"cldr-core@{CLDR}", "supplemental/territoryContainment.json"))
    continents = {"AQ": "AN"}
    for group, continent in CONTINENTS.items():
        for territory in within(data["supplemental"]["territoryContainment"], group):
            continents.setdefault(territory, continent)
    return [f"{code} {continents[code]} {names[code]}" for code in country_codes()]


def country_codes() -> list[str]:
    """The countries of ISO 3166-1, and Kosovo with the code that databases use."""
    return sorted([country.alpha_2 for country in pycountry.countries] + ["XK"])


def within(groups: dict, territory: str) -> list[str]:
    parts = groups.get(territory, {}).get("_contains", [])
    return parts + [member for part in parts for member in within(groups, part)]


def currencies() -> list[str]:
    data = json.loads(npm_file(f"cldr-core@{CLDR}", "supplemental/currencyData.json"))
    countries_of = {}
    for country, history in sorted(data["supplemental"]["currencyData"]["region"].items()):
        current = [code for entry in history for code, life in entry.items() if is_tender(life)]
        # Of several, prefer the country's national currency (LSL, not ZAR, for LS), then CLDR's first (ILS for PS).
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
        # The first name is frozen in CLDR. `_iana` is the current name where the tz database has changed it.
        canonical = zone.get("_iana", names[0]) if names else None
        legacy = sorted(name for name in names if name != canonical)
        # Etc/Unknown exists only in CLDR.
        if legacy and canonical != "Etc/Unknown":
            legacy_of[canonical] = legacy
    return grouped(legacy_of)


def subdivisions() -> list[str]:
    codes_of = {}
    for code in sorted(subdivision.code for subdivision in pycountry.subdivisions):
        codes_of.setdefault(code[:2], []).append(code)
    return [" ".join(codes) for codes in codes_of.values()]


def regions() -> list[str]:
    holders = {}
    for subdivision in pycountry.subdivisions:
        # Indonesia's islands are not regions but share names with provinces.
        if subdivision.type != "Geographical unit":
            country, code = subdivision.code[:2], subdivision.code
            for name in names(subdivision):
                holders.setdefault((country, fold(name)), {}).setdefault(code, set()).add("whole")
                if is_top(code):
                    holders.setdefault((country, bare(name)), {}).setdefault(code, set()).add("bare")
    found = []
    for (country, name), codes in holders.items():
        # Databases name the first level, so a region wins over a province of the same name.
        code, *others = [code for code in codes if is_top(code)] or codes
        if name and not others:
            # "Minsk Region" is not the city of Minsk.
            is_town = any(word in pycountry.subdivisions.get(code=code).type.lower() for word in TOWNS)
            if "whole" in codes[code] or not is_town:
                found.append((country, name, code))
            if "bare" in codes[code] and not is_town:
                found.append((country, f"~{name}", code))
    return [f"{code} {name}" for _, name, code in sorted(found)]


@functools.cache
def english_names() -> dict[str, str]:
    data = json.loads(npm_file(f"cldr-subdivisions-full@{CLDR}", "subdivisions/en/en.json"))
    english = data["subdivisions"]["localeDisplayNames"]["subdivisions"]
    names = {s.code: english[key] for s in pycountry.subdivisions if (key := s.code.replace("-", "").lower()) in english}
    # ISO reassigns codes, and CLDR still has the old names.
    stale = [code for code, name in names.items() if is_stale(code, fold(name))]
    renumbered = {country for country, count in Counter(code[:2] for code in stale).items() if count > 2}
    return {code: name for code, name in names.items() if code not in stale and code[:2] not in renumbered}


def is_stale(code: str, name: str) -> bool:
    """Whether a name does not match its code but nearly matches another code of the country."""
    likeness = {
        subdivision.code: SequenceMatcher(None, name, fold(subdivision.name)).ratio()
        for subdivision in pycountry.subdivisions.get(country_code=code[:2])
    }
    similarity = likeness.pop(code)
    return similarity < 0.5 and max(likeness.values(), default=0) >= 0.9


def is_top(code: str) -> bool:
    return pycountry.subdivisions.get(code=code).parent_code is None


def names(subdivision) -> set[str]:
    return {subdivision.name, english_names().get(subdivision.code, subdivision.name)}


def bare(name: str) -> str:
    """A folded name without the words for kinds of regions."""
    return "".join(word for word in map(fold, re.split(r"\W+", name)) if word not in KINDS)


def fold(name: str) -> str:
    """Reduces a name to lowercase ASCII letters and digits, without diacritics."""
    decomposed = "".join(LETTERS.get(letter, letter) for letter in unicodedata.normalize("NFKD", name.lower()))
    return "".join(letter for letter in decomposed if letter.isascii() and letter.isalnum())


def grouped(members_of: dict[str, list[str]]) -> list[str]:
    return [" ".join([head, *members]) for head, members in sorted(members_of.items())]


if __name__ == "__main__":
    main()
