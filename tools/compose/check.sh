#!/usr/bin/env bash
# check.sh [--program FILE] [--old COMMIT]: installs the Compose deployment as its README describes, breaks it, upgrades it, and
# removes everything that it started. Needs root.
#
# It uses the Docker of this machine and its registries. Without Docker, it starts one from Debian, in separate namespaces, and
# builds substitutes of the images that registries have. The compiler does not run in a container: the image gets the program
# of --program, by default a release build.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tools/compose/setup.sh
. tools/compose/setup.sh
trap cleanup EXIT
program='' old=fd96c36
while (($#)); do
    case $1 in
    --program) program=$2 && shift ;;
    --old) old=$2 && shift ;;
    *) echo "usage: check.sh [--program FILE] [--old COMMIT]" && exit 2 ;;
    esac
    shift
done
if [ -z "$program" ]; then
    cargo build --quiet --release -p ipseity-server
    program=$target/release/ipseity
fi
old_program=$(tools/old_version.sh "$old")
passed=0 failed=0

claim() { # claim TEXT COMMAND…
    local text=$1 start=${EPOCHREALTIME/./} result=ok
    shift
    if "$@" >"$dir/claim.log" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)) result=FAILED; fi
    printf '  %-7s %5.1f s  %s\n' $result "$((${EPOCHREALTIME/./} - start))e-6" "$text"
    if [ $result = FAILED ]; then
        sed 's/^/          /' "$dir/claim.log"
        { compose logs --no-color --tail 10 2>&1 || true; } | sed 's/^/          /'
    fi
}
wait_until() { # wait_until SECONDS COMMAND…
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        if ((SECONDS > deadline)); then return 1; fi
        sleep 0.2
    done
}
get() { nsenter --target "$client" --net curl --silent --show-error --fail --max-time 10 "$@"; }
with_key() { get --header "Authorization: Bearer $(<"$dir/key")" "$@"; }
lookup() { with_key http://73.162.0.6:8080/api/v1/ip; }
requests_today() { with_key http://73.162.0.6:8080/api/v1/key | jq --exit-status .usage.day; }
documented() { # Prints the code blocks of the README with this mark.
    awk -v mark="$1" '$0 == "```sh " mark { on = 1; next } /^```$/ { on = 0 } on' deploy/container/README.md >"$dir/$1.sh"
    [ -s "$dir/$1.sh" ]
}
ipseity() { compose exec ipseity /usr/bin/ipseity "$@"; }

install_as_documented() {
    documented compose && inside "$dir/source" bash -euxc "source $dir/compose.sh" | tee "$dir/installed" &&
        grep --only-matching 'ips_[0-9A-Za-z]*' "$dir/installed" >"$dir/key"
}
has_geo_data() { get http://73.162.0.6:8080/api/v1/meta | tee /dev/stderr | jq --exit-status '.databases | length == 3'; }
locates() { # locates URL FIELD ADDRESS
    with_key "$1/api/v1/ip" | tee /dev/stderr | jq --exit-status --arg field "$2" --arg address "$3" \
        '.[$field] == $address and .country == "US" and .city != null and .asn == 7922'
}
hides_ops() { "${host[@]}" curl --silent --show-error --fail http://127.0.0.1:9464/ready && ! get http://73.162.0.6:9464/live && ! get "http://[2601:640::6]:9464/live"; }
has_no_network() { for service in postgres valkey; do [ "$(inside / docker inspect --format '{{.HostConfig.NetworkMode}}' "ipseity-check-$service-1")" = none ] || return 1; done; }
# npm has old editions of the databases, which the doctor reports.
is_well() {
    { ipseity doctor --json || true; } | tee /dev/stderr |
        jq --slurp --exit-status 'length > 10 and all(.severity != "error" or (.check == "geo data" and (.message | contains("days old"))))'
}
state() { inside / docker inspect --format '{{.State.Pid}} {{.State.Health.Status}}' "ipseity-check-$1-1"; }
is_back() { # is_back SERVICE OLD_PID
    local pid health
    read -r pid health < <(state "$1") && [ "$pid" != "$2" ] && [ "$health" = healthy ]
}
restarts() {
    local pid
    read -r pid _ < <(state "$1")
    compose restart "$1" && wait_until 60 is_back "$1" "$pid" && lookup
}
# Not `docker kill`, after which the engine does not restart a container.
survives_kill() {
    local pid
    read -r pid _ < <(state "$1")
    inside / bash -c "kill -KILL $pid" && wait_until 60 is_back "$1" "$pid" && lookup
}
# A request that Valkey did not confirm in time is counted seconds later. Status requests are limited to one per second.
has_requests() { sleep 2 && [ "$(requests_today)" = "$1" ]; }
is_settled() { before=$(requests_today) && has_requests "$before"; }
keeps_data() { # keeps_data COMMAND…: the key works afterwards, and its requests are still counted.
    local before
    # A node that was killed holds its claim on Valkey for 10 seconds. Until then, the next one uses local limits.
    wait_until 30 is_settled && "$@" && lookup && wait_until 30 has_requests $((before + 1))
}
recreate() { compose down && compose up --detach --wait; }
install_old() {
    compose down --volumes && inside "$deployment" env IPSEITY_IMAGE=ipseity-check:old docker compose up --detach --wait &&
        ipseity account create --email old@example.com && ipseity key issue --account old@example.com --scope full --name old | tee "$dir/installed" &&
        grep --only-matching 'ips_[0-9A-Za-z]*' "$dir/installed" >"$dir/key" && wait_until 30 lookup && lookup && lookup
}
upgrade() { documented upgrade && inside "$dir/source" bash -euxc "source $dir/upgrade.sh"; }

mkdir "$dir/source"
git ls-files --cached --others --exclude-standard -z | tar --create --null --files-from - | tar --extract --directory "$dir/source"
if docker compose version >"$dir/log" 2>&1 && docker info >"$dir/log" 2>&1; then echo "compose: using the Docker of this machine"; else start_engine && echo "compose: using Docker of Debian and substitutes of images"; fi
inside / docker version --format 'compose: Docker {{.Server.Version}}'
inside / docker compose version
substitute rust ipseity-check-rust "$program"
substitute rust ipseity-check-rust:old "$old_program"
build_old_image "$old"
write_overrides
start_sources
start_client
compose down --volumes --remove-orphans >"$dir/log" 2>&1

claim "the documented commands install everything and print a key" install_as_documented
claim "the node has downloaded geo data" wait_until 120 has_geo_data
claim "a client gets its address and location over IPv4" locates http://73.162.0.6:8080 ip 73.162.0.7
claim "a client gets its address and location over IPv6" locates 'http://[2601:640::6]:8080' ipv6 2601:640::7
claim "the ops listener is reachable only from the machine" hides_ops
claim "PostgreSQL and Valkey have no network" has_no_network
claim "the doctor finds no error" is_well
for service in postgres valkey ipseity; do
    claim "$service is healthy after a restart, and the key works" restarts $service
    claim "$service is healthy after kill -9, and the key works" survives_kill $service
done
claim "down and up keep the key and its usage" keeps_data recreate
claim "the version $old starts, and its key works" install_old
claim "the documented upgrade keeps the key and its usage" keeps_data upgrade
claim "the upgraded node has geo data" wait_until 120 has_geo_data
claim "the doctor finds no error after the upgrade" is_well
echo "compose: $passed passed, $failed failed"
[ "$failed" = 0 ]
