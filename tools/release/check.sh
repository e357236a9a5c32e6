#!/usr/bin/env bash
# check.sh [--program FILE]: builds the files of a release like the release workflow, and verifies them. With --program, packs
# that program instead of building one.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
case ${1:-} in
'')
    program=$target/dist/ipseity
    tools/release/build.sh "$program"
    ;;
--program) program=$2 ;;
*) echo "usage: check.sh [--program FILE]" >&2 && exit 2 ;;
esac
rm -rf "$target/release-check"
tools/release/artifacts.sh "$program" "$target/release-check/out"
tools/release/finish.sh "$target/release-check/out" "$target/release-check/notes.md"
python3 tools/release/verify.py "$target/release-check/out"
echo "release notes: $target/release-check/notes.md, $(wc --lines <"$target/release-check/notes.md") lines"
echo "skipped other architectures than $(dpkg --print-architecture): a package contains what its program prints, so each is built where it runs"
