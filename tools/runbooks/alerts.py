"""alerts.md: what `doctor`, `ready`, `/ready` and the log print during outages is what the page says."""

import re

from system import Log, ctl, is_degraded, ready, redis, run, uses_stores, wait_for


def observe(system, claim, *expected):
    """Runs the commands with which every alert starts, and searches their output."""
    output = system.shell.run("alert", fails=True)
    missing = [text for text in expected if text not in output]
    system.check(claim, not missing, f"missing: {missing}\n{output}")


def follow(system):
    check, shell = system.check, system.shell
    observe(system, "without an outage, `doctor` and `ready` find no error", "ok       redis", "ok       postgres", "\nready\n")

    log = Log()
    with system.load() as callers:
        run("systemctl", "stop", "redis-server")
        wait_for("the node is degraded", is_degraded)
        # IpseityDegraded
        expected = ["error    redis", "is unreachable", "ready, in degraded mode", "entered degraded mode"]
        observe(system, "without Redis, `doctor` names it and `ready` says degraded", *expected)
        status, body = ready()
        check('`/ready` is 200 and shows `"degraded":true`', (status, body["degraded"], body["store"]) == (200, True, "ok"), body)
        # IpseityUsageFlushFailing
        wait_for("the log names the failed flush", lambda: "usage flush failed" in log)
        run("systemctl", "start", "redis-server")
        wait_for("the node uses the stores", uses_stores)
    system.check_answered(callers, "while Redis is down")
    check("the log has a line when the mode is entered and left", "entered degraded mode" in log and "left degraded mode" in log, log)

    log = Log()
    with system.load() as callers:
        run("systemctl", "stop", "postgresql")
        wait_for("the node notices", lambda: ready()[1].get("store") != "ok")
        # IpseityOutboxFailing
        observe(system, "without PostgreSQL, `doctor` names it, and the node is ready", "error    postgres", "is unreachable", "\nready\n")
        wait_for("the log names the outbox", lambda: "outbox run failed" in log)
        check("`/ready` is 200 without PostgreSQL", ready()[0] == 200, ready())
        run("systemctl", "start", "postgresql")
        wait_for("the node uses the stores", uses_stores)
    system.check_answered(callers, "while PostgreSQL is down")

    # IpseityNotReady
    ctl("drain")
    observe(system, "during a drain, `ready` prints the reason", "draining")
    check("`/ready` is 503 during a drain", ready()[0] == 503, ready())
    ctl("drain", "--end")
    check("`/ready` is 200 after `drain --end`", ready()[0] == 200, ready())

    # IpseityHighErrorRate
    output = shell.run("alert-debug")
    check("the level of the log changes without a restart", "debug" in output, output)
    # IpseityRedisSlow
    output = shell.run("alert-redis", [("Password", f"{system.redis_password}\n")], REDIS=system.redis_address)
    check("`redis-cli` measures the latency with the password", "NOAUTH" not in output and re.search(r"\d+ \d+ [\d.]+ \d+", output), output)

    # IpseityRedisNotTrusted
    log = Log()
    with system.load() as callers:
        redis("SET", "i3:{deployment}:id", "00000000-0000-0000-0000-000000000000:12345678", password=system.redis_password)
        wait_for("the node is degraded", is_degraded)
        expected = ["error    deployment", "not ready: Redis belongs to another deployment", "Redis not trusted"]
        observe(system, "with a foreign Redis, `doctor` and `ready` say so", *expected)
        check("`/ready` is 503 with a foreign Redis", ready()[0] == 503, ready())
        shell.run("alert-foreign", [("Password", f"{system.redis_password}\n")], REDIS=system.redis_address)
        wait_for("the node uses the stores", uses_stores)
    system.check_answered(callers, "with a foreign Redis")
    # So that later pages find little in the log.
    run("curl", "--silent", "--request", "PUT", "--data", "level=info", "--data", "duration_s=1", "http://127.0.0.1:9464/log")
