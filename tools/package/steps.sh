#!/usr/bin/env bash
# Installs, upgrades and removes the package as an operator would, on the temporary system of check.sh.
set -uo pipefail
cd /mnt || exit
export DEBIAN_FRONTEND=noninteractive
log=/tmp/steps.log
passed=0 failed=0

claim() { # claim TEXT COMMAND…
    local text=$1 start=${EPOCHREALTIME/./} result=ok
    shift
    if "$@" >"$log" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)) result=FAILED; fi
    printf '  %-7s %5.1f s  %s\n' $result "$((${EPOCHREALTIME/./} - start))e-6" "$text"
    if [ $result = FAILED ]; then
        sed 's/^/          /' "$log"
        journalctl --quiet --no-pager --unit ipseity --lines 10 | sed 's/^/          /'
    fi
}
# Every path that a package could leave behind, without the files of dpkg, PostgreSQL, Redis and the journal.
has_extras() {
    for path in man/man1/ipseity.1.gz man/man1/ipseity-key-issue.1.gz bash-completion/completions/ipseity{,ctl} zsh/vendor-completions/_ipseity \
        fish/vendor_completions.d/ipseity{,ctl}.fish ipseity/prometheus/alerts.yml ipseity/grafana/ipseity.json; do
        dpkg --listfiles ipseity | grep --quiet --line-regexp "/usr/share/$path" || return 1
    done
}
files() {
    find /etc /usr /opt /srv /var -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /var/lib/apt \
        -o -path /var/lib/PackageKit -o -path /var/lib/postgresql -o -path /var/lib/redis \) -prune -o -print | sort
}
lookup() { curl --silent --show-error --fail --max-time 20 --cacert /etc/ssl/localhost.pem --header "Authorization: Bearer $(cat /tmp/key)" "$@" https://localhost/api/v1/ip; }
install_package() { apt-get install --quiet --quiet --yes --no-install-recommends "$1" </dev/null; }
documented() { # Prints the code blocks of the runbook with these names.
    for name; do awk -v name="$name" '$1 == "```sh" && $2 == name { on = 1; next } $1 == "```" { on = 0 } on' ./*.md; done
}
pid() { systemctl show --value --property MainPID ipseity; }

is_closed_to_others() {
    [ "$(stat --format '%a %U:%G' /etc/ipseity)" = '750 root:ipseity' ] &&
        [ "$(stat --format '%a %U:%G' /etc/ipseity/ipseity.toml)" = '640 root:ipseity' ] &&
        [ "$(stat --format '%a %U:%G' /var/lib/ipseity)" = '750 ipseity:ipseity' ]
}
verifies() { local output; output=$(systemd-analyze verify ipseity.service ipseity.socket 2>&1 | grep ipseity); echo "$output"; [ -z "$output" ]; }
is_configured() {
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE -keyout /tmp/key.pem -out /etc/ssl/localhost.pem &&
        install -d -m 0750 -o root -g ipseity /etc/ipseity/tls &&
        install -m 0640 -o root -g ipseity /tmp/key.pem /etc/ipseity/tls/private-key.pem &&
        install -m 0640 -o root -g ipseity /etc/ssl/localhost.pem /etc/ipseity/tls/certificate.pem &&
        sed -i 's|^\[public\]|# Edited by the operator.\n[public]|' /etc/ipseity/ipseity.toml
}
# No step is about timeouts, so a busy machine must not cause any.
relax_timeouts() { sed -i 's|^\[ledger\]|[ledger]\ntimeout_ms = 1000|; s|^\[store\]|[store]\ntimeout_ms = 4000|; s|^\[edge\]|[edge]\nrequest_timeout_ms = 12000|' /etc/ipseity/ipseity.toml; }
set_up() {
    documented setup >/tmp/setup.sh && [ -s /tmp/setup.sh ] && bash -euxc 'source /tmp/setup.sh' | tee /tmp/installed &&
        bash -euxc "$(grep '^  curl ' /tmp/installed)" | grep '"status":"success"' && is_closed_to_others &&
        [ "$(stat --format '%a %U:%G' /etc/ipseity/tls/private-key.pem)" = '640 root:ipseity' ]
}
what_setup_created() { find /etc/ipseity/tls -type f -exec sha256sum {} + | sort && ipseityctl key list --account you@example.com --json | grep --only-matching '"id":"[^"]*"'; }
# A changed setting is applied, and everything else is kept.
set_up_again() {
    local before
    before=$(what_setup_created) && sed -i '1i [ops]\nlisten = "127.0.0.1:9465"\n' /etc/ipseity/ipseity.toml &&
        bash -euxc 'source /tmp/setup.sh' | grep 'has keys already' && curl --silent --show-error --fail http://127.0.0.1:9465/live &&
        sed -i '1,3d' /etc/ipseity/ipseity.toml && diff <(echo "$before") <(what_setup_created)
}
undo_setup() {
    systemctl disable --quiet --now ipseity && runuser -u postgres -- dropdb ipseity && runuser -u postgres -- dropuser ipseity &&
        rm -r /etc/ipseity/tls && redis-cli flushall
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
    documented backup >/tmp/backup.sh && documented restore-stop restore-roles restore restore-start >/tmp/restore.sh && [ -s /tmp/backup.sh ] && [ -s /tmp/restore.sh ] &&
        bash -euxc 'source /tmp/backup.sh' && systemctl stop ipseity.socket ipseity &&
        runuser -u postgres -- dropdb --force ipseity && runuser -u postgres -- dropuser ipseity &&
        bash -euxc 'source /tmp/restore.sh' && rm -r /var/backups/ipseity && lookup --retry 10 --retry-delay 1 --retry-connrefused
}
# Files of root in a directory that the service's user cannot enter.
uses_files_of_the_caller() {
    mkdir --mode=0700 /root/files && cd /root/files && (umask 077 && echo 'you@example.com,ip,from a file' >keys.csv) &&
        ipseityctl key issue --from keys.csv --out=keys.jsonl && [ "$(stat --format '%a %U:%G' keys.jsonl)" = '600 root:root' ] &&
        ipseityctl bench --keys keys.jsonl --ca-file /etc/ssl/localhost.pem --requests 2 && ipseityctl man . && [ -O ipseity.1 ] &&
        ! ipseityctl key issue --from keys.csv --out keys.jsonl && [ "$(wc --lines <keys.jsonl)" = 1 ]
    local code=$?
    cd /mnt && rm -rf /root/files && return $code
}
remove() { apt-get remove --quiet --quiet --yes ipseity && ! pgrep -x ipseity && [ -e /etc/ipseity/tls/private-key.pem ] && [ -d /var/lib/ipseity ] && [ ! -e /usr/bin/ipseity ]; }
purge() { apt-get purge --quiet --quiet --yes ipseity && ! getent passwd ipseity && ! getent group ipseity; }
leaves_no_file() { rm -f /etc/ssl/localhost.pem && files | diff /tmp/before - ; }

echo "$(. /etc/os-release && echo "$PRETTY_NAME"), $(systemctl --version | head -1), init: $(cat /proc/1/comm)"
files >/tmp/before
claim "the package installs and starts no service" eval 'install_package ./first.deb && ! systemctl is-active ipseity'
claim "it has man pages, completions, alerts and the dashboard" has_extras
claim "settings and data are not readable by other users" is_closed_to_others
claim "the units verify" verifies
claim "the service is rated at most 2.5 ($(systemd-analyze security --offline=true /lib/systemd/system/ipseity.service | sed -n 's/.*level for ipseity.service: \([0-9.]*\).*/\1/p'))" \
    systemd-analyze security --offline=true --threshold=25 /lib/systemd/system/ipseity.service
claim "timeouts are longer" relax_timeouts
claim "one command sets up everything, and the command that it prints looks up its caller" set_up
claim "a second run applies a changed setting and keeps everything else" set_up_again
claim "the setup is undone for the following steps" undo_setup
claim "the certificate is installed" is_configured
claim "after the documented commands the first lookup succeeds over TLS" first_lookup
claim "the process has the privileges of its unit and no others" is_confined
claim "HTTP/3 listens on the same port" speaks_http3
claim "pages are served" serves_pages
claim "with the socket unit, restarts lose no request" restart_with_sockets
claim "an upgrade does not affect the running service until its restart" upgrade
claim "ipseityctl reads and writes files of the caller" uses_files_of_the_caller
claim "the upgrade kept keys and settings" keeps_data
claim "after a documented backup, data loss and a documented restore the same key works" restore
claim "the service logs no warnings or errors" logs_no_warnings
claim "a removal keeps settings and data" remove
claim "a purge removes the user" purge
claim "a purge leaves no files" leaves_no_file
echo "package: $passed passed, $failed failed"
[ "$failed" = 0 ]
