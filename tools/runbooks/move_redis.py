"""redis.md: moves to another server with two nodes under load, starts empty, and limits the rights of nodes."""

import pathlib
import re

from system import Log, Node, RedisServer, redis, run, uses_stores, wait_for


def set_urls(system, *addresses, user=""):
    """Changes the file that `[ledger] url_file` names."""
    pathlib.Path("/etc/ipseity/ledger-url").write_text(system.redis_url(*addresses, user=user) + "\n")


def restart_all(system, second):
    system.shell.run("redis-restart")
    second.restart()


def follow(system):
    check, shell = system.check, system.shell
    old, server = system.redis_address, RedisServer("127.0.0.2", system.redis_password)
    new = server.address
    second = Node()
    log, before = Log(), sum(system.count(key) for key in system.load_keys)
    with system.load() as callers:
        shell.run("redis-replica", [("Password", f"{system.redis_password}\n")], OLD=old, NEW=new)
        set_urls(system, old, new)
        restart_all(system, second)
        shell.run("redis-failover")
        shell.run("redis-check")
        roles = redis("INFO", "replication", address=new, password=system.redis_password)
        check("the new server is the primary, and the old one its replica", "role:master" in roles and "connected_slaves:1" in roles, roles)
        system.redis_address = new
        set_urls(system)
        restart_all(system, second)
        run("systemctl", "stop", "redis-server")
        wait_for("both nodes use the new server", lambda: uses_stores() and second.uses_stores())
    system.check_answered(callers, "during the move")
    counted = sum(system.count(key) for key in system.load_keys) - before
    unverifiable = sum(int(count) for count in re.findall(r'"unverifiable":(\d+)', str(log)))
    missing = callers.outcomes[200] - counted
    check(f"all requests are counted ({missing} are not, {unverifiable} are reported as unverifiable)", 0 <= missing <= unverifiable)

    # Start empty: the server is lost, and another one has no data.
    counts = [system.count(key) for key in system.load_keys]
    wait_for("usage is flushed", lambda: all(system.flushed(key[4:14]) == count for key, count in zip(system.load_keys, counts)))
    server.stop()
    server = RedisServer("127.0.0.3", system.redis_password)
    system.redis_address = server.address
    set_urls(system)
    restart_all(system, second)
    wait_for("both nodes use the empty server", lambda: uses_stores() and second.uses_stores())
    check("counts are those of the last flush", [system.count(key) for key in system.load_keys] == counts)

    shell.run(
        "redis-rights",
        [("Password of Redis", f"{system.redis_password}\n"), ("user ipseity", f"{system.redis_password}\n")],
        REDIS=system.redis_address,
    )
    set_urls(system, user="ipseity")
    with system.load() as callers:
        restart_all(system, second)
        wait_for("both nodes use Redis with fewer rights", lambda: uses_stores() and second.uses_stores())
    system.check_answered(callers, "with a Redis user with few rights")
    second.stop()
    # Later pages use the user with all rights.
    set_urls(system)
    run("systemctl", "restart", "ipseity")
    wait_for("the node uses the stores", uses_stores)
