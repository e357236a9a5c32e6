"""lost-site.md: the primaries of PostgreSQL and Redis are lost, and replicas are promoted."""

import os
import pathlib
import tempfile

from system import RedisServer, ctl, is_degraded, psql, ready, redis, run, uses_stores, wait_for

REPLICA_PORT = "5433"


def start_postgres_replica(version):
    directory = f"{tempfile.mkdtemp()}/data"
    pathlib.Path(directory).parent.chmod(0o755)
    run("install", "-d", "-m", "0700", "-o", "postgres", directory)
    programs = f"/usr/lib/postgresql/{version}/bin"
    as_postgres = ["runuser", "-u", "postgres", "--"]
    run(*as_postgres, f"{programs}/pg_basebackup", "--pgdata", directory, "--write-recovery-conf", "--checkpoint=fast", cwd="/")
    # Debian keeps the configuration elsewhere. The new server needs only what differs.
    pathlib.Path(directory, "postgresql.conf").write_text(f"port = {REPLICA_PORT}\nunix_socket_directories = '/run/postgresql'\n")
    pathlib.Path(directory, "pg_hba.conf").write_text("local all all peer\nhost all all 127.0.0.1/32 scram-sha-256\n")
    run(*as_postgres, f"{programs}/pg_ctl", "--pgdata", directory, "--wait", "--log", f"{directory}/log", "start", cwd="/")


def follow(system):
    check, shell = system.check, system.shell
    version = psql("show server_version_num")[:-4]
    start_postgres_replica(version)
    replica = RedisServer("127.0.0.4", system.redis_password, f"masterauth {system.redis_password}")
    redis("REPLICAOF", system.redis_address, "6379", address=replica.address, password=system.redis_password)
    in_sync = lambda: "master_link_status:up" in redis("INFO", "replication", address=replica.address, password=system.redis_password)
    wait_for("Redis replicates", in_sync)
    pathlib.Path("/etc/ipseity/ledger-url").write_text(system.redis_url(system.redis_address, replica.address) + "\n")
    run("systemctl", "restart", "ipseity")
    wait_for("the node uses the stores", uses_stores)
    revoked = system.issue_key("revoked before the loss")
    system.status(revoked["key"])
    ctl("key", "deactivate", revoked["id"])
    wait_for("PostgreSQL replicates", lambda: psql("select bool_and(replay_lsn >= pg_current_wal_lsn()) from pg_stat_replication") == "t")

    with system.load() as callers:
        for key in system.load_keys:
            system.status(key)
        run("pg_ctlcluster", version, "main", "stop", "--mode", "immediate")
        run("systemctl", "stop", "redis-server")
        redis("SHUTDOWN", "NOSAVE", address=system.redis_address, password=system.redis_password, fails=True)
        wait_for("the node is degraded", is_degraded)
        check('`/ready` is 200 and shows `"degraded":true` without both stores', ready()[0] == 200, ready())
        # The page runs this on the machine of the replica.
        os.environ["PGPORT"] = REPLICA_PORT
        shell.run("promote-postgres")
        shell.run("promote-redis", [("Password", f"{system.redis_password}\n")], REPLICA=replica.address)
    system.check_answered(callers, "after the loss of both stores")
    pathlib.Path("/etc/ipseity/store-url").write_text(system.store_url(port=REPLICA_PORT) + "\n")
    pathlib.Path("/etc/ipseity/ledger-url").write_text(system.redis_url(replica.address) + "\n")
    run("systemctl", "restart", "ipseity")
    output = shell.run("promote-check")
    check("`doctor` finds no error", "\nerror " not in output, output)
    check("the revocation from before the loss is kept", system.status(revoked["key"]) == 403)
    wait_for("the node uses the stores", uses_stores)
    check("known keys work", [system.status(key) for key in system.load_keys] == [200] * len(system.load_keys))
