#!/usr/bin/env bash
# Installs, upgrades and removes the package as an operator would, on the temporary system of check.sh.
set -uo pipefail
cd /mnt || exit
export DEBIAN_FRONTEND=noninteractive
log=/tmp/steps.log
passed=0 failed=0

claim() { # claim TEXT COMMAND…
    local text=$1
    shift
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "  ok      $text"
    else
        failed=$((failed + 1))
        echo "  FAILED  $text"
        sed 's/^/          /' "$log"
        journalctl --quiet --no-pager --unit ipseity --lines 10 | sed 's/^/          /'
    fi
}
# Every path that a package could leave behind, without the files of dpkg, PostgreSQL, Redis and the journal.
files() {
    find /etc /usr /opt /srv /var -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /var/lib/apt \
        -o -path /var/lib/PackageKit -o -path /var/lib/postgresql -o -path /var/lib/redis \) -prune -o -print | sort
}
lookup() { curl --silent --show-error --fail --max-time 20 --cacert /etc/ssl/localhost.pem --header "Authorization: Bearer $(cat /tmp/key)" "$@" https://localhost/api/v1/ip; }
install_package() { apt-get install --quiet --quiet --yes --no-install-recommends "$1" </dev/null; }
documented() { # Prints the code blocks of the runbook with this mark.
    awk -v mark="$1" '$0 == "```sh " mark { on = 1; next } /^```$/ { on = 0 } on' ./*.md
}
pid() { systemctl show --value --property MainPID ipseity; }

is_closed_to_others() {
    [ "$(stat --format '%a %U:%G' /etc/ipseity)" = '750 root:ipseity' ] &&
        [ "$(stat --format '%a %U:%G' /etc/ipseity/ipseity.toml)" = '640 root:ipseity' ] &&
        [ "$(stat --format '%a %U:%G' /var/lib/ipseity)" = '750 ipseity:ipseity' ]
}
verifies() { local output; output=$(systemd-analyze verify ipseity.service ipseity.socket 2>&1 | grep ipseity); echo "$output"; [ -z "$output" ]; }
is_configured() {
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout /tmp/key.pem -out /etc/ssl/localhost.pem &&
        install -d -m 0750 -o root -g ipseity /etc/ipseity/tls &&
        install -m 0640 -o root -g ipseity /tmp/key.pem /etc/ipseity/tls/private-key.pem &&
        install -m 0640 -o root -g ipseity /etc/ssl/localhost.pem /etc/ipseity/tls/certificate.pem &&
        sed -i 's|^\[public\]|# Edited by the operator.\n[public]|' /etc/ipseity/ipseity.toml
}
first_lookup() {
    documented install >/tmp/install.sh && [ -s /tmp/install.sh ] &&
        bash -euxc 'source /tmp/install.sh' | tee /tmp/installed &&
        grep --only-matching 'ips_[0-9A-Za-z_]*' /tmp/installed >/tmp/key &&
        lookup --retry 10 --retry-delay 1 --retry-connrefused | grep '"tls_version":"TLSv1.3"'
}
is_confined() {
    local status
    status=$(cat "/proc/$(pid)/status")
    echo "$status"
    # Bit 10 is CAP_NET_BIND_SERVICE.
    grep -q "^Uid:.$(id -u ipseity)" <<<"$status" && grep -q '^CapEff:.0000000000000400$' <<<"$status" && grep -q '^CapBnd:.0000000000000400$' <<<"$status" &&
        grep -q '^NoNewPrivs:.1$' <<<"$status" && grep -q '^Seccomp:.2$' <<<"$status"
}
speaks_http3() { ss --no-header --listening --udp --numeric 'sport = :443' | grep 443; }
# Not grep -q: it ends at the first match, and curl fails if it cannot write the rest.
serves_pages() { curl --silent --show-error --fail --cacert /etc/ssl/localhost.pem https://localhost/ | grep '<h1>'; }
logs_no_warnings() { local output; output=$(journalctl --quiet --no-pager --unit ipseity --output cat | grep -E '"level":"(WARN|ERROR)"'); echo "$output"; [ -z "$output" ]; }

# Looks up until /tmp/stop exists; writes the number of successes and failures.
keep_looking_up() {
    local succeeded=0 failed=0
    until [ -e /tmp/stop ]; do
        if lookup --output /dev/null; then succeeded=$((succeeded + 1)); else failed=$((failed + 1)); fi
        sleep 0.25
    done
    echo "$succeeded $failed" >/tmp/lookups
}
restart_with_sockets() {
    rm -f /tmp/stop
    systemctl stop ipseity && systemctl enable --quiet --now ipseity.socket && systemctl start ipseity || return 1
    keep_looking_up &
    sleep 1
    systemctl restart ipseity && sleep 2 && systemctl restart ipseity
    sleep 1
    touch /tmp/stop
    wait
    local succeeded failed
    read -r succeeded failed </tmp/lookups
    echo "$succeeded lookups succeeded, $failed failed"
    [ "$succeeded" -ge 5 ] && [ "$failed" = 0 ]
}
upgrade() {
    local before
    before=$(pid)
    install_package ./next.deb && [ "$(pid)" = "$before" ] && lookup && documented upgrade >/tmp/upgrade.sh && [ -s /tmp/upgrade.sh ] &&
        bash -euxc 'source /tmp/upgrade.sh' && [ "$(pid)" != "$before" ]
}
keeps_data() { lookup --retry 10 --retry-delay 1 --retry-connrefused && ipseityctl account list | grep you@example.com && grep -q 'Edited by the operator' /etc/ipseity/ipseity.toml && is_closed_to_others; }
restore() {
    documented backup >/tmp/backup.sh && documented restore >/tmp/restore.sh && [ -s /tmp/backup.sh ] && [ -s /tmp/restore.sh ] &&
        bash -euxc 'source /tmp/backup.sh' && systemctl stop ipseity.socket ipseity &&
        runuser -u postgres -- dropdb --force ipseity && runuser -u postgres -- dropuser ipseity &&
        bash -euxc 'source /tmp/restore.sh' && rm -r /var/backups/ipseity && lookup --retry 10 --retry-delay 1 --retry-connrefused
}
remove() { apt-get remove --quiet --quiet --yes ipseity && ! pgrep -x ipseity && [ -e /etc/ipseity/tls/private-key.pem ] && [ -d /var/lib/ipseity ] && [ ! -e /usr/bin/ipseity ]; }
purge() { apt-get purge --quiet --quiet --yes ipseity && ! getent passwd ipseity && ! getent group ipseity; }
leaves_no_file() { rm -f /etc/ssl/localhost.pem && files | diff /tmp/before - ; }

echo "$(. /etc/os-release && echo "$PRETTY_NAME"), $(systemctl --version | head -1), init: $(cat /proc/1/comm)"
files >/tmp/before
claim "the package installs and starts no service" eval 'install_package ./first.deb && ! systemctl is-active ipseity'
claim "settings and data are not readable by other users" is_closed_to_others
claim "the units verify" verifies
claim "the service is rated at most 2.5 ($(systemd-analyze security --offline=true /lib/systemd/system/ipseity.service | sed -n 's/.*level for ipseity.service: \([0-9.]*\).*/\1/p'))" \
    systemd-analyze security --offline=true --threshold=25 /lib/systemd/system/ipseity.service
claim "the certificate is installed" is_configured
claim "after the documented commands the first lookup succeeds over TLS" first_lookup
claim "the process has the privileges of its unit and no others" is_confined
claim "HTTP/3 listens on the same port" speaks_http3
claim "pages are served" serves_pages
claim "with the socket unit, restarts lose no request" restart_with_sockets
claim "an upgrade does not affect the running service until its restart" upgrade
claim "the upgrade kept keys and settings" keeps_data
claim "after a documented backup, data loss and a documented restore the same key works" restore
claim "the service logs no warnings or errors" logs_no_warnings
claim "a removal keeps settings and data" remove
claim "a purge removes the user" purge
claim "a purge leaves no files" leaves_no_file
echo "package: $passed passed, $failed failed"
[ "$failed" = 0 ]
