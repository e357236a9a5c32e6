"""site.md: a home node, and a remote node on another machine, which is a namespace without access to the stores."""

import json
import subprocess

from system import SETTINGS, run, set_setting, uses_stores, wait_for

HOME, REMOTE = "10.9.0.1", "10.9.0.2"
SERVICE = "setpriv --reuid=ipseity --regid=ipseity --init-groups --inh-caps=+net_bind_service --ambient-caps=+net_bind_service --".split()


class Machine:
    """Separate settings, data and network."""

    def __init__(self, directory):
        self.process = subprocess.Popen(["unshare", "--mount", "--net", "sleep", "infinity"], cwd=directory)
        self.prefix = ["nsenter", f"--target={self.process.pid}", "--mount", "--net", "--wd"]
        own_network = lambda: run("readlink", f"/proc/{self.process.pid}/ns/net") != run("readlink", "/proc/self/ns/net")
        wait_for("the namespace exists", own_network)
        run("ip", "link", "add", "home0", "type", "veth", "peer", "name", "remote0", "netns", str(self.process.pid))
        run("ip", "address", "add", f"{HOME}/24", "dev", "home0")
        run("ip", "link", "set", "home0", "up")
        self.run("ip", "address", "add", f"{REMOTE}/24", "dev", "remote0")
        for device in ("lo", "remote0"):
            self.run("ip", "link", "set", device, "up")
        for directory in ("/etc/ipseity", "/var/lib/ipseity"):
            self.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", directory)

    def run(self, *command, **options):
        return run(*self.prefix, *command, **options)

    def start_node(self):
        command = [*self.prefix, *SERVICE, "env", "--chdir=/var/lib/ipseity", "ipseity", "--config", "/etc/ipseity/ipseity.toml", "serve"]
        self.node = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def ready(self):
        return self.run("curl", "--silent", "http://127.0.0.1:9464/ready", fails=True)

    def stop(self):
        for process in (self.node, self.process):
            process.terminate()
            process.wait()


def follow(system):
    check, shell = system.check, system.shell
    before = SETTINGS.read_text()
    remote = Machine(system.directory)
    with open("/etc/hosts", "a") as hosts:
        hosts.write(f"{HOME} home.example.com\n")
    shell.run("site-home")
    settings = {
        "listen": f"{HOME}:9443",
        "certificate_file": "/etc/ipseity/home.pem",
        "private_key_file": "/etc/ipseity/home.key",
        "ca_file": "/etc/ipseity/home.pem",
        "advertised_urls": ["https://home.example.com:9443"],
    }
    for name, value in settings.items():
        set_setting("home", name, value)
    run("systemctl", "restart", "ipseity")
    wait_for("the home node uses the stores", uses_stores)
    output = shell.run("site-add")
    directory = system.directory / "site-syd"
    is_private = directory.owner() == "root" and directory.stat().st_mode & 0o77 == 0
    check("the directory is the operator's, and no other user can read it", is_private, output)

    shell.prefix = remote.prefix
    shell.run("site-copy")
    # As an operator would with an editor.
    settings = f'[public]\nbase_url = "https://ip.example.com"\n{(directory / "ipseity.toml").read_text()}'.replace('colo = ""', 'colo = "SYD"')
    settings += 'http = []\nhttps = ["0.0.0.0:443"]\ncertificate_file = "fullchain.pem"\nprivate_key_file = "privkey.pem"\n'
    remote.run("install", "-m", "0640", "-g", "ipseity", "/dev/stdin", "/etc/ipseity/ipseity.toml", input=settings)
    remote.run("install", "-m", "0640", "-g", "ipseity", "-t", "/var/lib/ipseity", "fullchain.pem", "privkey.pem")
    remote.start_node()
    wait_for("the remote node is connected", lambda: '"home":"ok"' in remote.ready() and '"degraded":false' in remote.ready())
    output = shell.run("site-test", ADDRESS=REMOTE, KEY=system.key)
    check("a lookup at the site succeeds, with its colo", '"colo":"SYD"' in output and '"home":"ok"' in output, output)
    shell.prefix = []
    shell.run("site-remove")
    wait_for("home has disconnected the site", lambda: json.loads(remote.ready())["degraded"])
    check("after the removal, the site has no connection to home", True)
    # Its address is lost with the remote machine.
    SETTINGS.write_text(before)
    run("systemctl", "restart", "ipseity")
    wait_for("the node uses the stores", uses_stores)
    remote.stop()
