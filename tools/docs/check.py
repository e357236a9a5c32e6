"""Checks a running deployment: the OpenAPI document, the responses against that document, and every link.

Usage: check.py [--short]. `just docs-check` first builds and installs its dependencies.
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

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from deployment import LONG_TIMEOUTS, Deployment

# Minimum number of cases in each of the two runs, with keys and without.
CASES_MIN = 5000
CASES_SHORT = 150
# Enough keys that schemathesis exceeds the burst limit (300 requests in 60 seconds) of none.
KEYS, KEYS_SHORT = 100, 20
# For schemathesis, which sends any number of requests. It must not make the service send requests to the URLs of its channels.
MANAGE_SETTINGS = ["manage.requests_per_token_per_min_max=1000000", "portal.key_actions_per_account_max=1000000", "alerts.channels_per_account_max=0"]
REDOCLY = HERE / "node_modules/.bin/redocly"


class Report:
    """Prints and counts results."""

    def __init__(self):
        self.failed = 0

    def add(self, check, failures, detail=""):
        """Prints a line for the check, and its failures below it."""
        self.failed += bool(failures)
        print(f"{'FAIL' if failures else 'ok':<5} {check}{f': {detail}' if detail else ''}", flush=True)
        for line in failures[:40]:
            print(f"      {line}")


def lint(document, report):
    """Runs Redocly with its recommended rules and validates examples against their schemas."""
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
    summary = f"{totals['errors']} errors, {totals['warnings']} warnings{''.join(f'; {problem}' for problem in problems)}"
    report.add("redocly lint", problems if totals["errors"] else [], summary)


def schemathesis(deployment, report, keys, cases):
    """Sends generated requests until there are enough, and validates every response against the document."""
    name = "with keys" if keys else "without keys"
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    if keys:
        environment |= {"SCHEMATHESIS_HOOKS": "keys", "IPSEITY_KEYS": ",".join(key["key"] for key in keys),
                        "IPSEITY_TOKEN": deployment.create_token()}
    total, seed = 0, 1
    while total < cases:
        # With one worker: Python 3.11 cannot parse source code in two threads, which schemathesis does for requests with a body.
        command = ["schemathesis", "--config-file", HERE / "schemathesis.toml", "run", f"{deployment.http}/api/v1/openapi.json", "--url", deployment.http,
                   "--mode", "all", "--max-examples", str(max(cases // 6, 25)), "--seed", str(seed),
                   "--generation-database", "none", "--request-timeout", "30"]
        # schemathesis writes files to its working directory.
        with tempfile.TemporaryDirectory() as directory:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=directory)
        found = re.search(r"([\d,]+) generated", done.stdout)
        total += int(found[1].replace(",", "")) if found else 0
        seed += 1
        if done.returncode != 0 or not found:
            report.add(f"schemathesis {name}", done.stdout.splitlines()[-60:] + done.stderr.splitlines()[-10:], f"{total} cases")
            return
    report.add(f"schemathesis {name}", [], f"{total} cases, 0 failures")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--short", action="store_true")
    short = options.parse_args().short
    report = Report()
    with Deployment([*LONG_TIMEOUTS, *MANAGE_SETTINGS]) as deployment:
        document = json.loads(deployment.request("/api/v1/openapi.json")[2])
        count, failures = openapi.check(document, deployment.request("/api/v1/openapi.yaml")[2])
        report.add("every example matches its schema", failures, f"{count} examples")
        lint(document, report)
        crawler = crawl.Crawler(deployment)
        dead = crawler.crawl()
        report.add("no dead links or anchors", dead,
                    f"{len(crawler.seen)} pages and files, {len(crawler.wanted)} anchors; {len(crawler.external)} external links not followed")
        count, failures = crawl.check_error_links(deployment, document)
        report.add("every error links to its heading", failures, f"{count} errors")
        keys = [key for scope in ("ip", "geo", "full") for key in deployment.issue_keys((KEYS_SHORT if short else KEYS) // 3 + 1, scope)]
        cases = CASES_SHORT if short else CASES_MIN
        schemathesis(deployment, report, keys, cases)
        schemathesis(deployment, report, [], cases)
        paused = [key["id"] for key in keys if deployment.request(f"/api/v1/ip?key={key['key']}")[0] != 200]
        report.add("no key was paused", paused)
    print(f"docs-check: {report.failed} failed")
    return report.failed != 0


if __name__ == "__main__":
    sys.exit(main())
