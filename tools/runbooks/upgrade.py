"""upgrade.md: the next package and back, while callers send requests."""

from system import ready, run


def pid():
    return run("systemctl", "show", "--value", "--property", "MainPID", "ipseity").strip()


def installed():
    return run("dpkg-query", "--show", "--showformat", "${Version}", "ipseity")


def follow(system):
    check, shell = system.check, system.shell
    first, before = installed(), pid()
    with system.load() as callers:
        shell.run("upgrade-package")
        check("the package of the next version does not touch the running service", installed() != first and pid() == before)
        shell.run("upgrade")
        output = shell.run("upgrade-ready")
        check("the new process is ready", pid() != before and ready()[0] == 200, output)
        before = pid()
        shell.run("rollback", [("[Y/n]", "y\n")])
        check("the older version is ready again", installed() == first and pid() != before and ready()[0] == 200)
    system.check_answered(callers, "during an upgrade and a rollback, with the socket unit")
