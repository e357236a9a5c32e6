"""backup.md: dumps, changes, restores on the same server and on a new one."""

from system import ctl, psql, run, uses_stores, wait_for


def follow(system):
    check, shell = system.check, system.shell
    paused, revoked, inactive = (system.issue_key(name) for name in ("paused", "revoked after the dump", "inactive"))
    status = system.exhaust(paused["key"])
    check("the request after the burst limit pauses a key", status == 429, status)
    for _ in range(5):
        system.status(revoked["key"])
    ctl("key", "deactivate", inactive["id"])
    wait_for("usage is flushed", lambda: system.flushed(revoked["id"]) == 5)
    with system.load() as callers:
        shell.run("backup")
    system.check_answered(callers, "during a backup")
    contents = run("tar", "--list", "--file=/var/backups/ipseity/etc.tar.gz")
    check("the backup has the settings, but no sealing keys", "store-url" in contents and "sealing-keys" not in contents, contents)

    # Changes after the dump.
    for _ in range(3):
        system.status(revoked["key"])
    ctl("key", "deactivate", revoked["id"])
    ctl("key", "reactivate", inactive["id"])
    issued = system.issue_key("issued after the dump")
    check("before the restore, the keys have their new states", statuses(system, revoked, inactive, issued) == [403, 200, 200])
    wait_for("usage is flushed", lambda: system.flushed(revoked["id"]) == 8)

    shell.run("restore-stop")
    output = shell.run("restore-roles")
    check("roles that exist are reported", 'role "ipseity" already exists' in output, output)
    shell.run("restore-rename")
    shell.run("restore")
    shell.run("restore-start")
    keys = [paused, revoked, inactive, issued]
    check_restored(system, "on the same server: keys are as in the dump, although Redis kept its data", keys)
    count = system.count(revoked["key"])
    check("today's count of a key is as in Redis", count == 9, count)
    output = shell.run("restore-audit")
    check("the old database lists the changes since the dump", revoked["id"] in output and issued["id"] in output, output)

    # The server is lost, with its roles and passwords.
    shell.run("restore-stop")
    version = psql("show server_version_num")[:-4]
    run("pg_dropcluster", "--stop", version, "main")
    run("pg_createcluster", "--start", version, "main")
    shell.run("restore-roles")
    shell.run("restore")
    shell.run("restore-reset")
    shell.run("restore-start")
    check_restored(system, "on a new server, with the passwords of before: keys are as in the dump", keys)
    count = system.count(revoked["key"])
    check("after `ledger reset`, the count is that of the last flush before the dump", count == 6, count)
    output = shell.run("backup-test")
    check("the dump can be restored into a scratch database", "(1 row)" in output, output)


def statuses(system, *keys):
    return [system.status(key["key"]) for key in keys]


def check_restored(system, name, keys):
    wait_for("the node uses the stores", uses_stores)
    states = statuses(system, *keys)
    system.check(name, states == [403, 200, 403, 401], states)
