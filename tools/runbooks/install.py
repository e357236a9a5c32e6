"""install.md and configure.md: from a package to a node with passwords for PostgreSQL and Redis."""

import os
import re
import shutil

from system import psql, ready, redis, run, set_setting, uses_stores, wait_for


def follow(system):
    directory, check, shell = system.directory, system.check, system.shell
    # Packages in older lists cannot be downloaded here; those that the page names are installed.
    shutil.rmtree("/var/lib/apt/lists")
    shutil.copy("/mnt/first.deb", directory / "ipseity_0.2.0-1_amd64.deb")
    shutil.copy("/mnt/next.deb", directory / "ipseity_0.2.1-1_amd64.deb")
    with open("/etc/hosts", "a") as hosts:
        hosts.write("127.0.0.1 ip.example.com\n")
    run(
        *"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 -subj /CN=ip.example.com".split(),
        *"-addext subjectAltName=DNS:ip.example.com -keyout privkey.pem -out fullchain.pem".split(),
        cwd=directory,
    )
    # So that curl trusts the certificate.
    os.environ["CURL_CA_BUNDLE"] = system.certificate

    shell.run("install-package", [("[Y/n]", "y\n")])
    check("the package starts nothing", ready()[0] is None)
    set_setting("public", "base_url", "https://ip.example.com")
    # No page is about timeouts, so a busy machine must not cause any.
    set_setting("ledger", "timeout_ms", 1000)
    set_setting("store", "timeout_ms", 4000)
    set_setting("edge", "request_timeout_ms", 12000)
    set_setting("ops", "probe_timeout_ms", 5000)
    output = shell.run("install-certificate")
    check("`ipseityctl check` prints the base URL", "https://ip.example.com" in output, output)
    system.key = re.search(r"ips_\w+", shell.run("install"))[0]
    wait_for("the node uses the stores", uses_stores)
    output = shell.run("install-test", KEY=system.key)
    check("the key looks up its caller, and the log says that the node serves", '"status":"success"' in output and "serving" in output, output)
    shell.run("install-socket")
    wait_for("the node uses the stores", uses_stores)
    check("after the restart with sockets, the key works", system.status(system.key) == 200)


def type_lines(*lines):
    """Answers for commands that read a file from the terminal: a line, Enter and Ctrl-D each."""
    return [("", f"{line}\n\x04") for line in lines]


def configure(system):
    check, shell = system.check, system.shell
    shell.run("configure-restart")
    # PostgreSQL and Redis get passwords, as servers on other machines have.
    psql(f"alter role ipseity password '{system.store_password}'")
    redis("CONFIG", "SET", "appendonly", "yes")
    redis("CONFIG", "SET", "requirepass", system.redis_password)
    redis("CONFIG", "REWRITE", password=system.redis_password)
    shell.run("configure-secrets", type_lines(system.store_url(), system.redis_url()))
    set_setting("store", "url_file", "/etc/ipseity/store-url")
    set_setting("ledger", "url_file", "/etc/ipseity/ledger-url")
    output = shell.run("configure-restart")
    check("`check` prints no password", not any(secret in output for secret in (system.store_password, system.redis_password)), output)
    mode = run("stat", "--format", "%a %U:%G", "/etc/ipseity/store-url").strip()
    check("only root and the service read the passwords", mode == "640 root:ipseity", mode)
    wait_for("the node uses the stores", uses_stores)
    sessions = psql("select count(*) from pg_stat_activity where usename = 'ipseity' and client_addr is not null")
    check("the node uses PostgreSQL with the password", sessions != "0", sessions)

    output = shell.run("configure-proxy")
    check("`check --peer` explains the client address", "10.0.0.7" in output, output)
    shell.run("configure-sealing-keys")
    set_setting("public", "sealing_key_file", "/etc/ipseity/sealing-keys")
    shell.run("configure-restart")
    wait_for("the node uses the stores", uses_stores)
    output = shell.run("configure-plans")
    limit = system.lookup(system.key)[1].get("x-ratelimit-limit")
    check("the new plan applies to the next request", limit == "100000", f"{output}\n{limit}")
    system.load_keys = [system.issue_key(f"load {number}")["key"] for number in range(3)]


def restrict(system):
    output = system.shell.run("install-role")
    system.check("with the restricted role, `doctor` finds no error", "\nerror " not in output, output)
    states = [system.status(key) for key in (system.key, system.issue_key("role")["key"])]
    system.check("the key works, and a new one can be issued", states == [200, 200], states)
    output = system.shell.run("site-role")
    system.check("a site can be added with the role of the owner", "Added site per" in output, output)
