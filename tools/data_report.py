"""Measures the geo data and prints one table of figures and targets. The exit code is 1 if a target is missed.

Usage: python3 tools/data_report.py [--short] [--dir DIR] [--lists DIR] [--fuzz SECONDS] [--seed N] [--now UNIX_TIME]
(needs cargo, npm, pip and tools/requirements.txt; downloads databases into the directory once)

--short uses fewer addresses. --lists is a directory with public AS lists to compare the classification with:
asn-hosting-x4bnet.txt of X4BNet/lists_vpn and asn-isp-oxl.csv of O-X-L/risk-db-lists. tools/carriers.csv lists the networks in
the first list that offer no hosting, with the reason. --fuzz needs a C++ compiler.
"""

import argparse
import csv
import json
import random
import re
import resource
import subprocess
import sys
import time
import traceback
import zoneinfo
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

import maxminddb
import pycountry

from check_geo import SHOWN_MAX, compare, example, programs
from fetch_geo import ASN, CITY, DBIP_4, DBIP_6, fetch
from sources import pypi_source
from truth import ROOT, Cldr, Truth

MAXMINDDB = ("maxminddb", "3.2.0")
NEWEST_TZDATA = ("tzdata", "2026.6")
MEMORY_BYTES_MAX = 1 << 30
WEEK_S = 7 * 86_400
UNTIL_S = 4_102_444_800  # 2100-01-01
INSTANTS = 1_000
POINTS = 20_000
ACCESS_PROVIDERS = 200
HOSTING = [16509, 14618, 15169, 396982, 8075, 14061, 24940, 16276, 13335, 54113]
PROXIES = [9009, 212238, 60068, 62371, 39351, 216025, 197141]
NEITHER = [7922, 3320, 9318, 12389, 11426]


class Report:
    """Prints the table and counts missed targets. A failed measurement counts as missed; a skipped one does not."""

    def __init__(self) -> None:
        self.missed = 0

    def row(self, what: str, figure: str, target: str, met: bool | None) -> None:
        self.missed += met is False
        print(f"{ {True: 'met', False: 'MISSED', None: '-'}[met]:7}{what:<58}{figure:<44}{target}", flush=True)

    def part(self, measure: Callable[[], None]) -> None:
        start = time.monotonic()
        try:
            measure()
        except Exception:
            traceback.print_exc()
            self.row(measure.__name__, "failed", "can be measured", False)
        print(f"       ({measure.__name__}: {time.monotonic() - start:.0f} s)", flush=True)


class Measures:
    def __init__(self, options: argparse.Namespace, report: Report) -> None:
        self.options, self.report = options, report
        self.cldr = Cldr(options.now)
        self.city, self.asn, *self.dbip = fetch(options.dir, [CITY, ASN, DBIP_4, DBIP_6])
        self.samples = pypi_source(*MAXMINDDB, options.dir) / "tests/data"
        self.chance = random.Random(options.seed)

    def fields(self) -> None:
        anonymous = "GeoIP2-Anonymous-IP-Test"
        source = json.loads((self.samples / f"source-data/{anonymous}.json").read_text(encoding="utf-8"))
        # Random addresses would rarely hit the few networks of a sample.
        networks_in_sample = [network for entry in source for network in entry]
        for file, networks in (
            *((file, []) for file in (self.city, self.asn, *self.dbip)),
            (self.samples / f"test-data/{anonymous}.mmdb", networks_in_sample),
        ):
            truth = Truth([str(file)], self.cldr)
            options = self.options
            failed, _, count = compare(truth, [str(file)], options.count, options.seed, options.now, networks)
            for address, differences in list(failed.items())[:SHOWN_MAX]:
                print(f"       {address}: {'; '.join(differences)}")
            self.report.row(f"{file.name}: every field", f"{len(failed)} of {count:,} differ", "0 differ", not failed)

    def broken_files(self) -> None:
        files = sorted(self.samples.rglob("*.mmdb"))
        cap = (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX)
        outcomes = example(
            "inspect_databases", [str(file) for file in files], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, cap)
        )
        counts = Counter(outcome["outcome"] for outcome in outcomes)
        figure = f"0 panics; {counts['valid']} valid, {counts['rejected']} rejected, under {MEMORY_BYTES_MAX >> 30} GiB"
        # A panic ends the program and fails the measurement.
        met = len(outcomes) == len(files)
        self.report.row(f"{len(files)} sample, broken and bad-data files", figure, "0 panics", met)

    def offsets(self) -> None:
        names = self.offsets_by([], "timezone_offset, bundled tzdata")
        zones = Truth([], self.cldr).zones
        # Names without a location (Etc/UTC, EST5EDT) are in no country's list.
        located = {name: canonical for name, canonical in names.items() if "/" in name and "Etc/" not in name + canonical}
        legacy = [name for name, canonical in located.items() if canonical not in zones]
        changed = sum(name != canonical for name, canonical in names.items())
        figure = f"{len(legacy)} ({changed} replaced by canonical names) {legacy[:5] or ''}"
        self.report.row("legacy zone names left", figure, "0", not legacy)

    def newest_offsets(self) -> None:
        newest = pypi_source(*NEWEST_TZDATA, self.options.dir) / "src/tzdata/zoneinfo"
        self.offsets_by([newest], f"timezone_offset, tzdata {NEWEST_TZDATA[1]}")

    def offsets_by(self, tzpath: list[Path], what: str) -> dict[str, str]:
        """Checks every zone's offset at many instants; returns the canonical name of each zone."""
        zoneinfo.reset_tzpath(to=tzpath)
        zoneinfo.ZoneInfo.clear_cache()
        queries, wrong = [], Counter()
        for name in sorted(zoneinfo.available_timezones()):
            zone = zoneinfo.ZoneInfo(name)
            edges = [edge + step for edge in transitions(zone) for step in (-1, 0)]
            moments = self.chance.sample(edges, min(len(edges), INSTANTS // 2))
            moments += [self.chance.randrange(UNTIL_S) for _ in range(INSTANTS - len(moments))]
            queries += [(name, moment) for moment in moments]
        text = "".join(f"{json.dumps(query)}\n" for query in queries)
        names = {}
        for (name, moment), (canonical, offset) in zip(queries, example("zone_offsets", [], text), strict=True):
            names[name] = canonical
            wrong[name] += offset != offset_s(zoneinfo.ZoneInfo(name), moment)
        wrong = +wrong
        print("".join(f"       {name}: {count} wrong\n" for name, count in wrong.most_common(SHOWN_MAX)), end="")
        figure = f"{wrong.total()} of {len(queries):,} wrong ({len(wrong)} of {len(names)} zones)"
        self.report.row(what, figure, "0 wrong", not wrong)
        zoneinfo.reset_tzpath(to=[])
        zoneinfo.ZoneInfo.clear_cache()
        return names

    def points(self) -> None:
        reader = maxminddb.open_database(self.city)
        zone_of = {}
        while len(zone_of) < POINTS:
            location = (reader.get(random_ipv4(self.chance)) or {}).get("location", {})
            if "time_zone" in location:
                zone_of[location["latitude"], location["longitude"]] = location["time_zone"]
        text = "".join(f"{json.dumps([*point, self.options.now])}\n" for point in zone_of)
        same = sum(
            offset == offset_s(zoneinfo.ZoneInfo(zone), self.options.now)
            for zone, (_, offset) in zip(zone_of.values(), example("zone_offsets", [], text), strict=True)
        )
        figure = f"{same / len(zone_of):.2%} of {len(zone_of):,} points"
        self.report.row("time zone by GeoLite2's coordinates: same offset", figure, "99.95 %", same / len(zone_of) >= 0.9995)

    def countries(self) -> None:
        wrong = Counter()
        for code, facts in self.country_facts().items():
            wrong["country_name"] += facts["country_name"] != self.cldr.names[code]
            wrong["continent"] += facts["continent"] != self.cldr.continent(code) or facts["continent"] is None
            wrong["is_eu"] += facts["is_eu"] != (code in self.cldr.union)
            wrong["currency"] += facts["currency"] not in self.cldr.currencies(code)
            wrong["currency"] += facts["currency"] is None and code != "AQ"
        for field in ("country_name", "continent", "is_eu", "currency"):
            figure = f"{wrong[field]} of {len(self.cldr.codes)} wrong or missing"
            self.report.row(f"{field} of every country, compared with CLDR", figure, "0", not wrong[field])

    def country_facts(self) -> dict[str, dict]:
        results = example("country_facts", self.cldr.codes)
        return {facts["country"]: facts for facts in results}

    def region_codes(self) -> None:
        valid = {subdivision.code for subdivision in pycountry.subdivisions}
        truth = Truth([], self.cldr)
        for label, files in (("GeoLite2-City", [self.city]), ("DB-IP", self.dbip)):
            *lines, total = example("region_codes", [str(file) for file in files])
            codes = {(line["region_code"], line["country"]) for line in lines if line["region_code"]}
            wrong = [code for code, country in codes if code not in valid or code[:2] != country]
            named = [line for line in lines if line["region"]]
            coded = sum(line["region_code"] is not None for line in named)
            figure = f"{len(wrong)} invalid; {coded:,} of {len(named):,} regions with a code"
            what = f"region_code over all {total['records']:,} records of {label}"
            self.report.row(what, figure, "0 invalid", not wrong)
            if label == "GeoLite2-City":
                pairs = [(truth.region_by_name(line["country"], line["region"]), line["region_code"]) for line in named]
                both = [(by_name, listed) for by_name, listed in pairs if by_name and listed]
                figure = f"{sum(by_name == listed for by_name, listed in both):,} of {len(both):,} equal"
                self.report.row("region_code by name, compared with GeoLite2's code", figure, "-", None)

    def classification(self) -> None:
        expected = [(number, "hosting", True) for number in HOSTING] + [(number, "proxy", True) for number in PROXIES]
        expected += [(number, mark, False) for number in NEITHER for mark in ("hosting", "proxy")]
        marks = marks_of(number for number, _, _ in expected)
        wrong = [f"{number} {mark}" for number, mark, value in expected if marks[number][mark] is not value]
        self.report.row("known networks", f"{len(wrong)} of {len(expected)} wrong {wrong or ''}", "0", not wrong)
        lists = self.options.lists
        if lists is None or not lists.exists():
            self.report.row("hosting recall; false positives", "not measured: no lists", "90 %; 0", None)
            return
        space = Counter()
        for network, record in maxminddb.open_database(self.asn):
            space[record["autonomous_system_number"]] += network.num_addresses if network.version == 4 else 0
        self.recall(lists / "asn-hosting-x4bnet.txt", space)
        with open(lists / "asn-isp-oxl.csv", encoding="utf-8", newline="") as file:
            providers = {int(row["ASN"]) for row in csv.DictReader(file)}
        largest = sorted(providers, key=lambda number: -space[number])[:ACCESS_PROVIDERS]
        marks = marks_of(largest)
        false = [number for number in largest if marks[number]["hosting"] or marks[number]["proxy"]]
        what = f"false positives among the {ACCESS_PROVIDERS} largest access providers"
        self.report.row(what, f"{len(false)} {false or ''}", "0", not false)

    def recall(self, file: Path, space: Counter) -> None:
        hosting = {int(number) for number in re.findall(r"^AS(\d+)", file.read_text(encoding="utf-8"), re.MULTILINE)}
        marks = marks_of(hosting)
        with open(ROOT / "tools/carriers.csv", encoding="utf-8", newline="") as carriers_file:
            carriers = {int(row["asn"]) for row in csv.DictReader(carriers_file)}
        for label, among in ((f"less {len(hosting & carriers)} carriers", hosting - carriers), ("with them", hosting)):
            marked = sum(space[number] for number in among if marks[number]["hosting"])
            recall = marked / sum(space[number] for number in among)
            self.report.row(f"hosting recall by IPv4 space, X4BNet {label}", f"{recall:.2%}", "90 %", recall >= 0.9)


    def reloads(self) -> None:
        output = figures(["just", "geo-reload"])
        self.report.row("100 reloads under load", output, "0 failed or mixed", " 0 failed or mixed" in output)

    def updates(self) -> None:
        suite = ["just", "blackbox", "geo_update"]
        run = subprocess.run(suite, cwd=ROOT, capture_output=True, text=True)
        counts = re.search(r"(\d+) passed; (\d+) failed", run.stdout)
        figure = counts[0] if counts else "no result"
        self.report.row("geo update from a local HTTPS server", figure, "all passed", run.returncode == 0 and bool(counts))

    def memory(self) -> None:
        output = figures(["just", "geo-memory"])
        files, resident, peak = (int(re.search(rf"(\d+) MB {word}", output)[1]) for word in ("of files", "resident", "at the peak"))
        ready_s = re.search(r"ready after ([\d.]+)(ms|s)", output)
        ready_s = float(ready_s[1]) / (1000 if ready_s[2] == "ms" else 1)
        self.report.row("resident memory with GeoLite2 City and ASN", f"{resident} MB", "150 MB", resident <= 150)
        self.report.row("peak resident memory during a reload", f"{peak} MB", f"{2 * files} MB", peak <= 2 * files)
        self.report.row("time from start to ready", f"{ready_s:.2f} s", "1 s", ready_s <= 1)


    def fuzz(self) -> None:
        what = "fuzzing: open, verify, look up"
        if not self.options.fuzz:
            return self.report.row(what, "not measured: no --fuzz", "-", None)
        run = subprocess.run(["just", "fuzz", str(self.options.fuzz), "database"], cwd=ROOT, capture_output=True, text=True)
        done = re.search(r"database: (\d+) executions", run.stdout)
        figure = f"{int(done[1]):,} runs in {self.options.fuzz} s" if done else "failed early"
        self.report.row(what, figure, "0 crashes, 1 GiB", run.returncode == 0 and bool(done))


def figures(recipe: list[str]) -> str:
    """Returns the line of figures that a recipe prints."""
    run = subprocess.run(recipe, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in (run.stdout + run.stderr).splitlines() if re.search(r" MB of files|failed or mixed", line)]
    if not lines:
        raise RuntimeError(f"{' '.join(recipe)} printed no figures: {run.stderr[-2000:]}")
    return lines[-1].strip()


def marks_of(numbers: Iterable[int]) -> dict[int, dict]:
    numbers = sorted(set(numbers))
    return dict(zip(numbers, example("asn_facts", [], "".join(f"{number}\n" for number in numbers)), strict=True))


def random_ipv4(chance: random.Random) -> str:
    return ".".join(str(chance.randrange(256)) for _ in range(4))


def offset_s(zone: zoneinfo.ZoneInfo, moment: int) -> int:
    return int(datetime.fromtimestamp(moment, zone).utcoffset().total_seconds())


def transitions(zone: zoneinfo.ZoneInfo) -> list[int]:
    """The times from 1970 to 2100 at which the offset changes. Two changes within a week may be missed."""
    edges, before = [], offset_s(zone, 0)
    for week in range(WEEK_S, UNTIL_S, WEEK_S):
        after = offset_s(zone, week)
        if after != before:
            low, high = week - WEEK_S, week
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if offset_s(zone, middle) != before else (middle, high)
            edges.append(high)
        before = after
    return edges


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--dir", type=Path, default=ROOT / "data")
    parser.add_argument("--lists", type=Path)
    parser.add_argument("--fuzz", type=int, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--now", type=int, default=int(time.time()))
    options = parser.parse_args()
    options.count = 2_000 if options.short else 20_000
    report = Report()
    programs()
    measures = Measures(options, report)
    for measure in (
        measures.fields,
        measures.broken_files,
        measures.offsets,
        measures.points,
        measures.countries,
        measures.region_codes,
        measures.classification,
        # The short version skips what other suites run, and what only a new release of a library can fix.
        *(() if options.short else (measures.newest_offsets, measures.reloads, measures.updates, measures.memory, measures.fuzz)),
    ):
        report.part(measure)
    print(f"seed {options.seed}; {report.missed} targets missed")
    sys.exit(bool(report.missed))


if __name__ == "__main__":
    main()
