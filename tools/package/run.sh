#!/usr/bin/env bash
# run.sh [--short] [--program FILE] [--package FILE] [--suite NAME] [--runbooks [ARGUMENT…]]: builds two packages of one program
# and checks them with check.sh. With --package, the first is the given package, and the second has its program. --runbooks
# follows the runbooks instead, with the remaining arguments.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
program='' package='' short='' runbooks='' suite=bookworm steps=(bash /mnt/steps.sh)
while (($#)); do
    case $1 in
    --short) short=yes ;;
    --program) program=$2 && shift ;;
    --package) package=$2 && shift ;;
    --suite) suite=$2 && shift ;;
    --runbooks) runbooks=yes steps=(python3 /mnt/runbooks/main.py "${@:2}") && break ;;
    *) echo "usage: run.sh [--short] [--program FILE] [--package FILE] [--suite NAME] [--runbooks [ARGUMENT…]]" && exit 2 ;;
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
# The runbooks need no new packages if none of their parts has changed.
is_current() { [ $runbooks ] && [ -e "$1" ] && [ -z "$(find "$program" deploy docs/operations crates/server/Cargo.toml -newer "$1" -print -quit)" ]; }
next=$target/debian/ipseity-next.deb
if [ -z "$package" ]; then
    package=$target/debian/ipseity.deb
    is_current "$package" || tools/package/build.sh "$program" "$package" "${arguments[@]}"
fi
is_current "$next" || tools/package/build.sh "$program" "$next" --deb-revision 2 "${arguments[@]}"
tools/package/check.sh "$lower" "$package" "$next" "${steps[@]}"
