"""Expected geo fields of an address, from an independent database reader and the sources of the tables."""

import csv
import datetime
import json
import struct
import zoneinfo
from importlib import resources
from pathlib import Path

import maxminddb
import pycountry

from sources import CLDR, npm_file
from tables import bare, fold

ROOT = Path(__file__).resolve().parent.parent
EU_TERRITORIES = set("AX GF GP MF MQ RE YT".split())
CONTINENTS = {"002": "AF", "003": "NA", "005": "SA", "009": "OC", "142": "AS", "150": "EU"}
PROXY_FLAGS = ["is_anonymous_vpn", "is_public_proxy", "is_residential_proxy", "is_tor_exit_node"]


class Cldr:
    """Country data of CLDR."""

    def __init__(self, now_s: int) -> None:
        core = f"cldr-core@{CLDR}"
        territories = json.loads(npm_file(f"cldr-localenames-full@{CLDR}", "main/en/territories.json"))
        self.names = territories["main"]["en"]["localeDisplayNames"]["territories"]
        containment = json.loads(npm_file(core, "supplemental/territoryContainment.json"))
        groups = containment["supplemental"]["territoryContainment"]
        self.union = set(groups["EU"]["_contains"]) | EU_TERRITORIES
        self.parents = {}
        for group, entry in groups.items():
            for member in entry["_contains"]:
                self.parents.setdefault(member, []).append(group)
        data = json.loads(npm_file(core, "supplemental/currencyData.json"))
        self.tenders = data["supplemental"]["currencyData"]["region"]
        self.day = datetime.datetime.fromtimestamp(now_s, datetime.timezone.utc).date().isoformat()
        self.codes = sorted([country.alpha_2 for country in pycountry.countries] + ["XK"])

    def continent(self, territory: str) -> str | None:
        if territory == "AQ":
            return "AN"
        if territory in CONTINENTS:
            return CONTINENTS[territory]
        found = {self.continent(parent) for parent in self.parents.get(territory, []) if parent.isdigit()} - {None}
        return found.pop() if len(found) == 1 else None

    def currencies(self, country: str | None) -> set[str | None]:
        lives = [(code, life) for entry in self.tenders.get(country, []) for code, life in entry.items()]
        current = {
            code
            for code, life in lives
            if life.get("_tender", "true") == "true" and life.get("_from", "0") <= self.day <= life.get("_to", "9")
        }
        return {code for code in current if code[:2] == country} or current or {None}


class Truth:
    """Expected fields from databases of different kinds: locations, networks or anonymizers."""

    def __init__(self, files: list[str], cldr: Cldr) -> None:
        self.readers = [maxminddb.open_database(file) for file in files]
        self.cldr = cldr
        self.subdivisions = {subdivision.code for subdivision in pycountry.subdivisions}
        # Use the tzdata package instead of the system's time zones.
        zoneinfo.reset_tzpath(to=[])
        zone_tab = resources.files("tzdata.zoneinfo").joinpath("zone.tab").read_text(encoding="utf-8")
        self.zones = {line.split("\t")[2] for line in zone_tab.splitlines() if not line.startswith("#")}
        with open(ROOT / "crates/geo/src/builtin_asn_list.csv", encoding="utf-8", newline="") as file:
            self.marks = {(int(row["asn"]), row["kind"]) for row in csv.DictReader(file)}
        lines = (ROOT / "crates/geo/src/tables/regions.txt").read_text(encoding="utf-8").splitlines()
        self.regions = {(code[:2], name): code for code, name in (line.split(" ") for line in lines if line[0] != "#")}

    def record(self, address: str) -> dict:
        """Merges the records of all databases. A database of the other address family has none."""
        merged = {}
        for reader in self.readers:
            if ":" not in address or reader.metadata().ip_version == 6:
                merged |= reader.get(address) or {}
        return merged

    def differences(self, address: str, now_s: int, result: dict) -> list[str]:
        record = self.record(address)
        expected = self.location(record) | self.network(record)
        found = [
            f"{field}: {result[field]!r}, expected {value!r}"
            for field, value in expected.items()
            if result[field] != value
        ]
        found += self.zone_differences(record, expected["latitude"], now_s, result)
        if result["currency"] not in self.cldr.currencies(expected["country"]):
            found.append(f"currency: {result['currency']!r} for {expected['country']}")
        unchecked = set(result) - set(expected) - {"timezone", "timezone_offset", "currency"}
        return found + [f"{field}: not checked" for field in unchecked]

    def location(self, record: dict) -> dict:
        country = record.get("country") or record.get("registered_country") or {}
        region = (record.get("subdivisions") or [{}])[0]
        city = record.get("city") or {}
        code = country.get("iso_code") or record.get("country_code") or None
        name = region.get("names", {}).get("en") or record.get("state1") or None
        region_code = f"{code}-{region.get('iso_code')}"
        if region_code not in self.subdivisions:
            region_code = self.region_by_name(code, name or "")
        latitude, longitude = coordinates(record)
        return {
            "city": (city if isinstance(city, str) else city.get("names", {}).get("en")) or None,
            "region": name,
            "region_code": region_code,
            "country": code,
            "country_name": country.get("names", {}).get("en") or self.cldr.names.get(code),
            "continent": record.get("continent", {}).get("code") or (self.cldr.continent(code) if code else None),
            "latitude": latitude,
            "longitude": longitude,
            "postal_code": record.get("postal", {}).get("code") or record.get("postcode") or None,
            "is_eu": code in self.cldr.union if code else None,
        }

    def region_by_name(self, country: str | None, name: str) -> str | None:
        return self.regions.get((country, fold(name))) or self.regions.get((country, f"~{bare(name)}"))

    def network(self, record: dict) -> dict:
        number = record.get("autonomous_system_number")
        proxy = any(record.get(flag) for flag in PROXY_FLAGS)
        return {
            "asn": number,
            "org": record.get("autonomous_system_organization"),
            "proxy": proxy or ((number, "proxy") in self.marks if number else None),
            "hosting": record.get("is_hosting_provider") or ((number, "hosting") in self.marks if number else None),
        }

    def zone_differences(self, record: dict, latitude: float | None, now_s: int, result: dict) -> list[str]:
        zone = record.get("location", {}).get("time_zone") or record.get("timezone") or None
        name, offset = result["timezone"], result["timezone_offset"]
        if name is None:
            # A point at sea has no zone.
            return [] if zone is None and offset is None else [f"timezone: {name!r} {offset!r}, expected {zone!r}"]
        # zone.tab lists the canonical zones of every country. A legacy name must have been replaced by one of them.
        if name not in self.zones or (zone in self.zones and name != zone) or (zone is latitude is None):
            return [f"timezone: {name!r}, expected {zone!r} or its canonical name"]
        clock = datetime.datetime.fromtimestamp(now_s, zoneinfo.ZoneInfo(zone or name))
        expected = int(clock.utcoffset().total_seconds())
        return [] if offset == expected else [f"timezone_offset: {offset!r} in {zone}, expected {expected!r}"]


def coordinates(record: dict) -> tuple[float | None, float | None]:
    location = record.get("location", {})
    if "latitude" in location:
        return location["latitude"], location["longitude"]
    # Flat files store 32-bit floats. Use the shortest number with the same 32-bit value.
    return shortest(record.get("latitude")), shortest(record.get("longitude"))


def shortest(number: float | None) -> float | None:
    if number is None:
        return None
    stored = struct.pack("f", number)
    candidates = (float(f"{number:.{digits}g}") for digits in range(1, 18))
    return next(candidate for candidate in candidates if struct.pack("f", candidate) == stored)
