"""main.py [--short | SCENARIO…]: follows the runbooks on the booted system of tools/package/check.sh and checks what they promise.

The node is installed and configured first, because every page needs one. `--short` follows those of SHORT."""

import pathlib
import sys
import time
import traceback

import alerts
import backup
import install
import lost_site
import move_redis
import runbook
import secrets_page
import site_page
import upgrade
from system import Checks, System

HERE = pathlib.Path(__file__).parent
# In the order in which they run.
SCENARIOS = {
    "install": install.follow,
    "configure": install.configure,
    "alerts": alerts.follow,
    "backup": backup.follow,
    "secrets": secrets_page.follow,
    "upgrade": upgrade.follow,
    "redis": move_redis.follow,
    "site": site_page.follow,
    "role": install.restrict,
    "lost-site": lost_site.follow,
}
# Pages with blocks of several scenarios. The others have the name of theirs.
SHARED_PAGES = {"install.md": {"install", "role"}, "site.md": {"site", "role"}}
ALWAYS = ["install", "configure"]
SHORT = ["backup", "secrets"]


def main(arguments):
    selected = ALWAYS + (SHORT if arguments == ["--short"] else arguments or list(SCENARIOS))
    if not set(selected) <= set(SCENARIOS):
        sys.exit(f"usage: main.py [--short | {' | '.join(SCENARIOS)}]…")
    runbooks = runbook.Runbooks(HERE.parent)
    check = Checks()
    directory = pathlib.Path("/root/operator")
    directory.mkdir(mode=0o700)
    system = System(None, check, directory)
    finished = []
    for name, follow in SCENARIOS.items():
        if name not in selected:
            continue
        started = time.monotonic()
        print(name, flush=True)
        # A reader opens a new shell for each task.
        system.shell = runbook.Shell(runbooks, directory)
        try:
            follow(system)
        except Exception:
            check("the page can be followed to its end", False, traceback.format_exc())
            break
        finished.append(name)
        print(f"          {time.monotonic() - started:.1f} s", flush=True)
    pages = [page for page in runbooks.pages() if SHARED_PAGES.get(page, {page.removesuffix(".md")}) <= set(finished)]
    problems = list(runbooks.problems(pages))
    check("every block of these pages ran in the order of the page", not problems, "\n".join(problems))
    print(f"{len(set(runbooks.finished))} blocks ran, {len(runbooks.skipped)} are marked as not run:")
    for place, reason in runbooks.skipped:
        print(f"  {place}: {reason}")
    print(f"runbooks: {check.passed} passed, {check.failed} failed")
    return 1 if check.failed else 0


sys.exit(main(sys.argv[1:]))
