#!/usr/bin/env bash
# build.sh PROGRAM FILE [ARGUMENT…]: makes a Debian package of a program that is built already; further arguments are cargo-deb's.
set -euo pipefail
program=$(realpath "$1")
file=$(realpath --canonicalize-missing "$2")
shift 2
cd "$(dirname "$0")/../.."
# cargo-deb looks for the program in a target folder, by its own rules; it is given one that holds nothing else.
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
mkdir -p "$staged/release" "$(dirname "$file")"
cp --reflink=auto "$program" "$staged/release/ipseity"
CARGO_TARGET_DIR=$staged cargo deb --quiet --no-build --strip -p ipseity-server --output "$file" "$@" >/dev/null
echo "$file: $(dpkg-deb --field "$file" Version), $(du --apparent-size --block-size=1M "$file" | cut -f1) MB, needs $(dpkg-deb --field "$file" Depends)"
