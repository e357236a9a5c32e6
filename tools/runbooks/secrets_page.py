"""secrets.md: rotates every secret under load. The old one is rejected afterwards."""

import os
import pathlib
import re
import subprocess

from install import type_lines
from system import REDIS, Log, psql, ready, redis, run, uses_stores, wait_for


def can_log_in(url):
    return subprocess.run(["psql", url, "--command", "select 1"], capture_output=True, cwd="/", check=False).returncode == 0


def rotate_postgres(system, old, new, password):
    shell = system.shell
    old_url, system.store_password = system.store_url(old), password
    system.check(f"before, the role {old} can log in", can_log_in(old_url))
    with system.load() as callers:
        answers = [(prompt, f"{password}\n") for prompt in ("Enter new password", "again: ")]
        shell.run("postgres-password", answers + [("", f"{system.store_url(new)}\n\x04")], OLD=old, NEW=new)
        shell.run("postgres-lock")
    system.check_answered(callers, f"during the rotation from {old} to {new}")
    system.check(f"afterwards, {old} is rejected and {new} accepted", not can_log_in(old_url) and can_log_in(system.store_url(new)))
    sessions = psql(f"select count(*) from pg_stat_activity where usename = '{old}'")
    system.check(f"no session of {old} is left", sessions == "0", sessions)
    system.check("the node uses PostgreSQL", ready()[1].get("store") == "ok", ready())


def follow(system):
    check, shell = system.check, system.shell
    shell.run("postgres-role")
    rotate_postgres(system, "ipseity", "ipseity2", "second-store-password")
    # The next time, with the roles swapped.
    rotate_postgres(system, "ipseity2", "ipseity", "third-store-password")

    old, new = system.redis_password, "second-redis-password"
    with system.load() as callers:
        shell.run("redis-password", [("Current password", f"{old}\n"), ("New password", f"{new}\n")], REDIS=REDIS)
        system.redis_password = new
        shell.run("redis-password-node", type_lines(system.redis_url()))
        shell.run("redis-password-remove")
        wait_for("the node uses the stores", uses_stores)
    system.check_answered(callers, "during the rotation of the Redis password")
    answers = [redis("PING", password=password, fails=True) for password in (old, new)]
    check("the old password of Redis is rejected, the new one accepted", "PONG" not in answers[0] and "PONG" in answers[1], answers)
    check("the old password is not in the configuration file", old not in pathlib.Path("/etc/redis/redis.conf").read_text())
    with system.load() as callers:
        run("systemctl", "restart", "redis-server")
        wait_for("the node uses the stores", uses_stores)
    system.check_answered(callers, "during a restart of Redis")
    answers = [redis("PING", password=password, fails=True) for password in (old, new)]
    check("so it is after a restart of Redis", "PONG" not in answers[0] and "PONG" in answers[1], answers)

    log = Log()
    keys = pathlib.Path("/etc/ipseity/sealing-keys")
    first = keys.read_text()
    for step, block in enumerate(["sealing-keys-add", "sealing-keys-swap", "sealing-keys-remove"], 1):
        shell.run(block)
        wait_for("the node has loaded the keys", lambda: str(log).count("sealing keys loaded") >= step)
    last = keys.read_text()
    check("the node uses the new sealing key alone, without a restart", re.fullmatch(r"seal \w{64}\n", last) and last != first)
    check("the file of sealing keys is readable by root and the service only", oct(os.stat(keys).st_mode)[-3:] == "640")

    key = system.issue_key("rotated")
    output = shell.run("key-rotate", ID=key["id"])
    rotated = re.search(r"ips_\w+", output)[0]
    states = [system.status(secret) for secret in (key["key"], rotated)]
    check("after a rotation, both secrets of a key work", states == [200, 200], f"{states}\n{output}")
    shell.run("key-deactivate")
    states = [system.status(secret) for secret in (key["key"], rotated)]
    check("after a deactivation, the next request is rejected", states == [403, 403], states)
