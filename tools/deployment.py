"""Starts the service for Python checks: `dev --json` with its PostgreSQL and Redis on free ports, and issues keys."""

import http.client
import itertools
import json
import os
import pathlib
import secrets
import string
import subprocess
import tempfile
import urllib.parse
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = (ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug").resolve()
KEYS_PER_ACCOUNT = 10
BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
ACCOUNT_NUMBERS = itertools.count(1)
# Checks do not test timeouts, so a busy machine must not cause any.
LONG_TIMEOUTS = ["ledger.timeout_ms=5000", "store.timeout_ms=10000", "portal.query_timeout_ms=10000", "edge.request_timeout_ms=20000"]


class Deployment:
    """Ends with its `with` block. What `dev --json` prints is in `info`: http, https, portal, ca, keys, env."""

    def __init__(self, settings=LONG_TIMEOUTS):
        # For tickets.
        self.sealing_keys = tempfile.NamedTemporaryFile("w")
        self.sealing_keys.write(f"seal {secrets.token_hex(32)}\n")
        self.sealing_keys.flush()
        settings = [*settings, f"public.sealing_key_file={self.sealing_keys.name}"]
        self.settings = [part for setting in settings for part in ("--set", setting)]

    def __enter__(self):
        command = ["setpriv", "--pdeathsig", "TERM", TARGET / "dev", "--json", *self.settings]
        # Not in the checkout, whose geo databases would change responses.
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tempfile.gettempdir())
        self.info = json.loads(self.process.stdout.readline())
        self.http = self.info["http"]
        self.portal = self.info["portal"]
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.sealing_keys.close()

    def cli(self, *arguments):
        """Runs `ipseity` and returns what it prints."""
        environment = {**os.environ, **self.info["env"]}
        return subprocess.run([TARGET / "ipseity", *arguments], env=environment, check=True, capture_output=True).stdout

    def issue_keys(self, count, scope):
        """Issues keys on new accounts."""
        keys = []
        for number in range(count):
            if number % KEYS_PER_ACCOUNT == 0:
                email = f"{next(ACCOUNT_NUMBERS)}@example.com"
                self.cli("account", "create", "--email", email)
            output = self.cli("key", "issue", "--account", email, "--scope", scope, "--name", f"key {number}", "--json")
            keys.append(json.loads(output))
        return keys

    def create_token(self):
        """Creates an account and a personal token with every scope, which people do on a page."""
        email = f"{next(ACCOUNT_NUMBERS)}@example.com"
        self.cli("account", "create", "--email", email)
        payload = "ipm_" + "".join(secrets.choice(BASE62) for _ in range(42))
        number, checksum = zlib.crc32(payload.encode()), ""
        for _ in range(6):
            number, digit = divmod(number, 62)
            checksum = BASE62[digit] + checksum
        token = payload + checksum
        sql = f"""update accounts set tokens_may_resume = true where email = '{email}';
            insert into personal_tokens (id, account_id, name, digest, scopes)
            select '{token[4:14]}', id, 'checks', sha256('{token}'),
                '{{keys:read,keys:write,keys:resume,usage:read,alerts:read,alerts:write}}' from accounts where email = '{email}'"""
        subprocess.run(["psql", "-v", "ON_ERROR_STOP=1", "-qc", sql, self.info["env"]["IPSEITY__STORE__URL"]], check=True)
        return token

    def request(self, path, method="GET", headers=None):
        """Sends a request over plain HTTP; returns status, headers and body."""
        address = urllib.parse.urlsplit(self.http)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, body
