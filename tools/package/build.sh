#!/usr/bin/env bash
# build.sh PROGRAM FILE [ARGUMENT…]: packages a built program for Debian. Further arguments are passed to cargo-deb.
set -euo pipefail
program=$(realpath "$1")
file=$(realpath --canonicalize-missing "$2")
shift 2
cd "$(dirname "$0")/../.."
# cargo-deb expects the program in a target directory.
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
mkdir -p "$staged/release" "$(dirname "$file")"
# Without options of cargo-deb, so that the package has the same bytes as the image.
strip --output-file="$staged/release/ipseity" "$program"
mkdir "$staged/release/man" "$staged/release/completions"
"$program" man "$staged/release/man" >/dev/null
# Without names and times, so that two builds have the same bytes.
gzip --no-name --best "$staged"/release/man/*.1
# ipseityctl has the same arguments.
completions=$staged/release/completions
"$program" completions bash >"$completions/ipseity"
{ cat "$completions/ipseity"; echo 'complete -F _ipseity -o bashdefault -o default ipseityctl'; } >"$completions/ipseityctl"
"$program" completions zsh | sed '1s/$/ ipseityctl/' >"$completions/_ipseity"
"$program" completions fish >"$completions/ipseity.fish"
echo 'complete -c ipseityctl -w ipseity' >"$completions/ipseityctl.fish"
CARGO_TARGET_DIR=$staged cargo deb --quiet --no-build --no-strip -p ipseity-server --output "$file" "$@" >/dev/null
echo "$file: $(dpkg-deb --field "$file" Version), $(du --apparent-size --block-size=1M "$file" | cut -f1) MB, needs $(dpkg-deb --field "$file" Depends)"
