"""Compares crates/geo with an independent reader and with the sources of its tables, on random routed addresses.

Usage: python3 tools/check_geo.py --city FILE --asn FILE [--count N] [--seed N] [--now UNIX_TIME]
(needs cargo, npm and tools/requirements.txt). Every address is asked for twice, half a year apart, for both offsets of its zone.
"""

import argparse
import csv
import datetime
import ipaddress
import json
import random
import subprocess
import sys
import time
import zoneinfo
from collections import Counter
from importlib import resources
from pathlib import Path

import maxminddb
import pycountry
import tzdata

from sources import CLDR, npm_file

ROOT = Path(__file__).resolve().parent.parent
HALF_YEAR_S = 182 * 86_400
SHOWN_MAX = 20
EU = set("AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK".split())
EU_TERRITORIES = set("AX GF GP MF MQ RE YT".split())
# The first 16 bits of the blocks from which IPv6 addresses are handed out.
IPV6_BLOCKS = [0x2001, *(high + low for high in (0x2400, 0x2600, 0x2800, 0x2A00, 0x2C00) for low in range(16))]


class Truth:
    """What should be answered, from the databases and the tables' sources alone."""

    def __init__(self, city: str, asn: str, now_s: int) -> None:
        self.city = maxminddb.open_database(city, maxminddb.MODE_MEMORY)
        self.asn = maxminddb.open_database(asn, maxminddb.MODE_MEMORY)
        self.subdivisions = {subdivision.code for subdivision in pycountry.subdivisions}
        currencies = json.loads(npm_file(f"cldr-core@{CLDR}", "supplemental/currencyData.json"))
        self.tenders = currencies["supplemental"]["currencyData"]["region"]
        self.day = datetime.datetime.fromtimestamp(now_s, datetime.timezone.utc).date().isoformat()
        # Not the machine's time zones, but those of the tzdata package.
        zoneinfo.reset_tzpath(to=[])
        zone_tab = resources.files("tzdata.zoneinfo").joinpath("zone.tab").read_text(encoding="utf-8")
        self.zones = {line.split("\t")[2] for line in zone_tab.splitlines() if not line.startswith("#")}
        with open(ROOT / "crates/geo/src/networks.csv", encoding="utf-8", newline="") as file:
            self.marks = {(int(row["asn"]), row["kind"]) for row in csv.DictReader(file)}

    def knows(self, address: str) -> bool:
        return self.asn.get(address) is not None or self.city.get(address) is not None

    def differences(self, address: str, now_s: int, answer: dict) -> list[str]:
        expected = self.place(address) | self.network(address)
        found = [
            f"{field}: {answer[field]!r}, expected {value!r}"
            for field, value in expected.items()
            if answer[field] != value
        ]
        found += self.zone_differences(address, now_s, answer)
        if answer["currency"] not in self.currencies(expected["country"]):
            found.append(f"currency: {answer['currency']!r} for {expected['country']}")
        unchecked = set(answer) - set(expected) - {"timezone", "timezone_offset", "currency"}
        return found + [f"{field}: not checked" for field in unchecked]

    def place(self, address: str) -> dict:
        record = self.city.get(address) or {}
        country = record.get("country") or record.get("registered_country") or {}
        region = (record.get("subdivisions") or [{}])[0]
        code = country.get("iso_code")
        region_code = f"{code}-{region.get('iso_code')}"
        return {
            "city": record.get("city", {}).get("names", {}).get("en"),
            "region": region.get("names", {}).get("en"),
            "region_code": region_code if region_code in self.subdivisions else None,
            "country": code,
            "country_name": country.get("names", {}).get("en"),
            "continent": record.get("continent", {}).get("code"),
            "latitude": record.get("location", {}).get("latitude"),
            "longitude": record.get("location", {}).get("longitude"),
            "postal_code": record.get("postal", {}).get("code"),
            "is_eu": code in EU | EU_TERRITORIES if code else None,
        }

    def network(self, address: str) -> dict:
        record = self.asn.get(address) or {}
        number = record.get("autonomous_system_number")
        return {
            "asn": number,
            "org": record.get("autonomous_system_organization"),
            "proxy": (number, "proxy") in self.marks if number else None,
            "hosting": (number, "hosting") in self.marks if number else None,
        }

    def zone_differences(self, address: str, now_s: int, answer: dict) -> list[str]:
        told = ((self.city.get(address) or {}).get("location") or {}).get("time_zone")
        name, offset = answer["timezone"], answer["timezone_offset"]
        if told is None or name is None:
            return [] if told is name is offset is None else [f"timezone: {name!r} {offset!r}, expected {told!r}"]
        # zone.tab names every country's zones; a name outside it is a legacy one and must have become one of them.
        if name not in self.zones or (told in self.zones and name != told):
            return [f"timezone: {name!r}, expected {told!r} or its canonical name"]
        clock = datetime.datetime.fromtimestamp(now_s, zoneinfo.ZoneInfo(told))
        expected = int(clock.utcoffset().total_seconds())
        return [] if offset == expected else [f"timezone_offset: {offset!r} in {told}, expected {expected!r}"]

    def currencies(self, country: str | None) -> set[str | None]:
        lives = [(code, life) for entry in self.tenders.get(country, []) for code, life in entry.items()]
        current = {
            code
            for code, life in lives
            if life.get("_tender", "true") == "true" and life.get("_from", "0") <= self.day <= life.get("_to", "9")
        }
        return {code for code in current if code[:2] == country} or current or {None}


def draw(truth: Truth, count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    addresses = []
    while len(addresses) < count:
        if len(addresses) % 2:
            address = str(ipaddress.IPv4Address(chance.getrandbits(32)))
        else:
            address = str(ipaddress.IPv6Address(chance.choice(IPV6_BLOCKS) << 112 | chance.getrandbits(112)))
        if truth.knows(address):
            addresses.append(address)
    return addresses


def locate(addresses: list[str], now_s: int, files: list[str]) -> list[dict]:
    command = ["cargo", "run", "--quiet", "--release", "-p", "geo", "--example", "locate", "--", str(now_s)]
    files = [str(Path(file).resolve()) for file in files]
    text = "".join(f"{address}\n" for address in addresses)
    run = subprocess.run(command + files, cwd=ROOT, input=text, capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return [json.loads(line) for line in run.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--city", required=True)
    parser.add_argument("--asn", required=True)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--now", type=int, default=int(time.time()))
    options = parser.parse_args()

    truth = Truth(options.city, options.asn, options.now)
    addresses = draw(truth, options.count, options.seed)
    failed, known = {}, Counter()
    for now_s in (options.now, options.now + HALF_YEAR_S):
        answers = locate(addresses, now_s, [options.city, options.asn])
        for address, answer in zip(addresses, answers, strict=True):
            known.update(field for field, value in answer.items() if value is not None)
            if differences := truth.differences(address, now_s, answer):
                failed.setdefault(address, differences)

    for address, differences in list(failed.items())[:SHOWN_MAX]:
        print(f"{address}: {'; '.join(differences)}")
    print(f"seed {options.seed}, time zones of tzdata {tzdata.IANA_VERSION}")
    print("known: " + ", ".join(f"{field} {times / 2 / len(addresses):.1%}" for field, times in known.items()))
    print(f"{len(addresses) - len(failed)} passed, {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
