"""Checks the front door against a running house: the OpenAPI document, the service by that document, and every link.

Usage: check.py [--short]. `just docs-check` builds and installs what it needs first.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import crawl
import document as openapi
from house import House

HERE = pathlib.Path(__file__).resolve().parent
# In full: at least so many cases in each of the two runs, with keys and without.
CASES_MIN = 5000
CASES_SHORT = 150
# A key may make 300 requests in a minute; so many keys are never paused by what schemathesis can send.
KEYS, KEYS_SHORT = 100, 20
REDOCLY = HERE / "node_modules/.bin/redocly"


class Report:
    """What was checked, and how it went."""

    def __init__(self):
        self.failed = 0

    def tell(self, what, wrong, detail=""):
        """One line for each check, and what is wrong below it."""
        self.failed += bool(wrong)
        print(f"{'FAIL' if wrong else 'ok':<5} {what}{f': {detail}' if detail else ''}", flush=True)
        for line in wrong[:40]:
            print(f"      {line}")


def lint(document, report):
    """Redocly's recommended rules, with the examples held to their schemas."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        environment = {**os.environ, "REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
        command = [REDOCLY, "lint", file.name, "--config", HERE / "redocly.yaml", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE)
    try:
        totals = json.loads(done.stdout)["totals"]
        problems = [f"{problem['ruleId']}: {problem['message']}" for problem in json.loads(done.stdout)["problems"]]
    except (ValueError, KeyError):
        totals, problems = {"errors": 1, "warnings": 0}, [done.stdout + done.stderr]
    told = f"{totals['errors']} errors, {totals['warnings']} warnings{''.join(f'; {problem}' for problem in problems)}"
    report.tell("redocly lint", problems if totals["errors"] else [], told)


def schemathesis(house, report, keys, cases):
    """Random and systematic requests by the document, until there are enough; every answer is held to it."""
    name = "with keys" if keys else "without keys"
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    if keys:
        environment |= {"SCHEMATHESIS_HOOKS": "keys", "IPSEITY_KEYS": ",".join(key["key"] for key in keys)}
    total, seed = 0, 1
    while total < cases:
        command = ["schemathesis", "--config-file", HERE / "schemathesis.toml", "run", f"{house.http}/api/v1/openapi.json", "--url", house.http,
                   "--mode", "all", "--max-examples", str(max(cases // 6, 25)), "--seed", str(seed), "--workers", "2",
                   "--generation-database", "none", "--request-timeout", "30"]
        # It keeps notes where it runs.
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
        found = re.search(r"([\d,]+) generated", done.stdout)
        total += int(found[1].replace(",", "")) if found else 0
        seed += 1
        if done.returncode != 0 or not found:
            report.tell(f"schemathesis {name}", done.stdout.splitlines()[-60:] + done.stderr.splitlines()[-10:], f"{total} cases")
            return
    report.tell(f"schemathesis {name}", [], f"{total} cases, 0 failures")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--short", action="store_true")
    short = options.parse_args().short
    report = Report()
    with House() as house:
        document = json.loads(house.ask("/api/v1/openapi.json")[2])
        count, wrong = openapi.check(document, house.ask("/api/v1/openapi.yaml")[2])
        report.tell("every example is what its schema says", wrong, f"{count} examples")
        lint(document, report)
        crawler = crawl.Crawler(house)
        dead = crawler.crawl()
        report.tell("no link and no anchor is dead", dead,
                    f"{len(crawler.seen)} pages and files, {len(crawler.wanted)} anchors; {len(crawler.external)} addresses elsewhere not followed")
        count, wrong = crawl.errors_lead_home(house, document)
        report.tell("every error leads to a heading about it", wrong, f"{count} errors")
        keys = [key for scope in ("ip", "geo", "full") for key in house.issue((KEYS_SHORT if short else KEYS) // 3 + 1, scope)]
        cases = CASES_SHORT if short else CASES_MIN
        schemathesis(house, report, keys, cases)
        schemathesis(house, report, [], cases)
        paused = [key["id"] for key in keys if house.ask(f"/api/v1/ip?key={key['key']}")[0] != 200]
        report.tell("no key was paused", paused)
    print(f"docs-check: {report.failed} failed")
    return report.failed != 0


if __name__ == "__main__":
    sys.exit(main())
