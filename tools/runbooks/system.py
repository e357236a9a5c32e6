"""The system on which the runbooks are followed: a booted Debian with PostgreSQL, Redis and the package."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import load

OPS_URL = "http://127.0.0.1:9464"
SETTINGS = pathlib.Path("/etc/ipseity/ipseity.toml")
REDIS = "127.0.0.1"
# Of the plan that configure.md adds.
BURST_LIMIT = 600


def run(*command, fails=False, **options):
    """Runs a command and returns what it prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode and not fails:
        raise AssertionError(f"{' '.join(command)} ended with code {done.returncode}:\n{done.stdout}")
    return done.stdout


def ctl(*arguments):
    return run("ipseityctl", *arguments)


def psql(query, database="ipseity"):
    return run("runuser", "-u", "postgres", "--", "psql", "--no-align", "--tuples-only", "--command", query, database, cwd="/").strip()


def wait_for(what, condition, seconds=40):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}; /ready is {ready()}")
        time.sleep(0.2)


def ready(ops_url=OPS_URL):
    """Status and body of /ready; None if the node does not answer."""
    try:
        with urllib.request.urlopen(f"{ops_url}/ready", timeout=5) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
    except OSError:
        return None, {}


def is_degraded():
    return ready()[1].get("degraded") is not False


def uses_stores(ops_url=OPS_URL):
    status, body = ready(ops_url)
    return status == 200 and (body["degraded"], body["store"], body["ledger"]) == (False, "ok", "ok")


def set_setting(section, name, value):
    """Sets a setting in the file of the node, as an operator would with an editor."""
    text = SETTINGS.read_text()
    line = f"{name} = {json.dumps(value)}\n"
    body = re.search(rf"^\[{section}\]\n(.*?)(?=^\[|\Z)", text, re.M | re.S)
    if not body:
        SETTINGS.write_text(f"{text}\n[{section}]\n{line}")
        return
    kept = re.sub(rf"^{name} = .*\n", "", body[1], flags=re.M)
    SETTINGS.write_text(text[: body.start(1)] + line + kept + text[body.end(1) :])


class Log:
    """What the service logs after this object was created."""

    def __init__(self):
        self.cursor = run("journalctl", "--unit", "ipseity", "--lines", "0", "--show-cursor").rpartition("-- cursor: ")[2].strip()

    def __str__(self):
        return run("journalctl", "--unit", "ipseity", "--output", "cat", f"--after-cursor={self.cursor}" if self.cursor else "--boot")

    def __contains__(self, text):
        return text in str(self)


class RedisServer:
    """A further Redis server with a password and an append-only file, at another address of the machine."""

    def __init__(self, address, password, *options):
        self.address, self.password = address, password
        self.directory = tempfile.mkdtemp()
        configuration = pathlib.Path(self.directory, "redis.conf")
        # The password is not among the arguments, which the page forbids.
        lines = [f"bind {address}", "port 6379", f"bind-source-addr {address}", f"dir {self.directory}", "appendonly yes", *options]
        if password:
            lines.append(f"requirepass {password}")
        configuration.write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen(["redis-server", str(configuration)], stdout=subprocess.DEVNULL)
        wait_for(f"Redis at {address} answers", lambda: "PONG" in redis("PING", address=address, password=password, fails=True))

    def stop(self):
        self.process.terminate()
        self.process.wait()


def redis(*command, address=REDIS, password="", fails=False):
    variables = {"REDISCLI_AUTH": password} if password else {}
    return run("redis-cli", "-e", "-h", address, *command, fails=fails, env={**os.environ, **variables})


class Node:
    """A second node with the same settings, at other ports."""

    def __init__(self, name="second", ops="127.0.0.1:9465", **options):
        self.unit, self.ops_url = f"ipseity-{name}", f"http://{ops}"
        variables = {"IPSEITY__EDGE__HTTPS": "[::]:8443", "IPSEITY__OPS__LISTEN": ops, "IPSEITY__ADMIN__LISTEN": "", **options}
        run(
            *("systemd-run", "--quiet", f"--unit={self.unit}", "--uid=ipseity", "--working-directory=/var/lib/ipseity"),
            *(f"--setenv={name}={value}" for name, value in variables.items()),
            *("/usr/bin/ipseity", "--config", str(SETTINGS), "serve"),
        )
        wait_for(f"{self.unit} uses the stores", self.uses_stores)

    def uses_stores(self):
        return uses_stores(self.ops_url)

    def restart(self):
        run("systemctl", "restart", self.unit)
        wait_for(f"{self.unit} is ready", lambda: ready(self.ops_url)[0] == 200)

    def stop(self):
        run("systemctl", "stop", self.unit)


class Checks:
    """Prints each claim with its result and counts them."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def __call__(self, claim, holds, detail=""):
        if holds:
            self.passed += 1
            print(f"  ok      {claim}", flush=True)
        else:
            self.failed += 1
            print(f"  FAILED  {claim}", flush=True)
            for line in str(detail).splitlines():
                print(f"          {line}")


class System:
    """What scenarios share: keys, passwords and the checks."""

    def __init__(self, shell, check, directory):
        self.shell, self.check, self.directory = shell, check, directory
        self.certificate = str(directory / "fullchain.pem")
        self.store_password, self.redis_password, self.redis_address = "first-store-password", "first-redis-password", REDIS
        self.key, self.load_keys = "", []

    def store_url(self, role="ipseity", port=5432):
        return f"postgres://{role}:{self.store_password}@127.0.0.1:{port}/ipseity"

    def redis_url(self, *addresses, user=""):
        return ",".join(f"redis://{user}:{self.redis_password}@{address}:6379" for address in addresses or [self.redis_address])

    def redis(self, *command):
        return redis(*command, address=self.redis_address, password=self.redis_password)

    def issue_key(self, name):
        return json.loads(ctl("key", "issue", "--account", "you@example.com", "--scope", "full", "--name", name, "--json"))

    def exhaust(self, key):
        """Exceeds the burst limit of a key; returns the last status."""
        connection = load.connect(self.certificate)
        for _ in range(BURST_LIMIT + 1):
            connection.request("GET", "/api/v1/ip", headers={"Authorization": f"Bearer {key}"})
            response = connection.getresponse()
            response.read()
        connection.close()
        return response.status

    def lookup(self, key, port=443):
        return load.request("/api/v1/ip", key, self.certificate, port)

    def status(self, key):
        return self.lookup(key)[0]

    def count(self, key):
        """Today's count of a key. The answer may be a second old, so that a caller waits for it."""
        time.sleep(1.1)
        return load.request("/api/v1/key", key, self.certificate)[2]["usage"]["day"]

    def load(self):
        return load.Load(self.load_keys, self.certificate)

    def flushed(self, key_id):
        return int(psql(f"select coalesce(sum(admitted), 0) from usage where key_id = '{key_id}'"))

    def check_answered(self, callers, during):
        self.check(f"{during}: every request was answered with 200 ({callers})", not callers.failures, callers)
