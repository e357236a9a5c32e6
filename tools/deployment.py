"""A running house for the checks: the service with its own PostgreSQL and Redis, and as many keys as are asked for."""

import http.client
import itertools
import json
import os
import pathlib
import subprocess
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = (ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug").resolve()
KEYS_PER_ACCOUNT = 10
NUMBERS = itertools.count(1)
# A machine that does many things at once is not what these checks are about.
PATIENT = ["ledger.timeout_ms=5000", "store.timeout_ms=10000", "portal.query_timeout_ms=10000", "edge.request_timeout_ms=20000"]


class House:
    """Ends with its `with` block."""

    def __enter__(self):
        settings = [part for setting in PATIENT for part in ("--set", setting)]
        command = ["setpriv", "--pdeathsig", "TERM", TARGET / "dev", "--json", *settings]
        # Away from the project's own folder, where real geo data may lie.
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tempfile.gettempdir())
        self.shown = json.loads(self.process.stdout.readline())
        self.http = self.shown["http"]
        self.base = self.shown["portal"]
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def command(self, *arguments):
        """Runs `ipseity` on this house, and gives what it prints."""
        environment = {**os.environ, **self.shown["env"]}
        return subprocess.run([TARGET / "ipseity", *arguments], env=environment, check=True, capture_output=True).stdout

    def issue(self, count, scope):
        """So many keys of a scope, on accounts of their own."""
        keys = []
        for number in range(count):
            if number % KEYS_PER_ACCOUNT == 0:
                email = f"{next(NUMBERS)}@example.com"
                self.command("account", "create", "--email", email)
            shown = self.command("key", "issue", "--account", email, "--scope", scope, "--name", f"key {number}", "--json")
            keys.append(json.loads(shown))
        return keys

    def ask(self, path, method="GET", headers=None):
        """Asks over the clear listener; gives status, headers and body."""
        address = urllib.parse.urlsplit(self.http)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body
