#!/usr/bin/env bash
# run.sh [--short] [--program FILE] [--package FILE] [--suite NAME]: builds two packages of one program and checks them with
# check.sh. With --package, the first is the given package, and the second has its program.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
program='' package='' short='' suite=bookworm
while (($#)); do
    case $1 in
    --short) short=yes ;;
    --program) program=$2 && shift ;;
    --package) package=$2 && shift ;;
    --suite) suite=$2 && shift ;;
    *) echo "usage: run.sh [--short] [--program FILE] [--package FILE] [--suite NAME]" && exit 2 ;;
    esac
    shift
done
if [ "$package" ]; then
    rm -rf "$target/debian/content"
    mkdir -p "$target/debian"
    dpkg-deb --extract "$package" "$target/debian/content"
    program=$target/debian/content/usr/bin/ipseity
fi
arguments=()
if [ $short ]; then
    lower=/
    if [ -z "$program" ]; then
        cargo build --quiet -p ipseity-server --features ipseity-server/failpoints
        program=$target/debug/ipseity
    fi
    arguments=(--fast)
else
    lower=$target/debian/$suite
    if [ -z "$program" ]; then
        cargo build --quiet --release -p ipseity-server
        program=$target/release/ipseity
    fi
    if [ ! -d "$lower" ]; then
        mkdir -p "$target/debian"
        rm -rf "$lower.part"
        mmdebstrap --quiet --variant=minbase --include=systemd-sysv,dbus,postgresql,redis-server,curl,ca-certificates,openssl,iproute2,procps \
            "$suite" "$lower.part"
        mv "$lower.part" "$lower"
    fi
fi
if [ -z "$package" ]; then
    package=$target/debian/ipseity.deb
    tools/package/build.sh "$program" "$package" "${arguments[@]}"
fi
tools/package/build.sh "$program" "$target/debian/ipseity-next.deb" --deb-revision 2 "${arguments[@]}"
tools/package/check.sh "$lower" "$package" "$target/debian/ipseity-next.deb"
