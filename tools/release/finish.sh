#!/usr/bin/env bash
# finish.sh DIR NOTES: writes DIR/SHA256SUMS for the files in DIR, and the changelog of the version to NOTES.
set -euo pipefail
dir=$(realpath "$1")
notes=$(realpath --canonicalize-missing "$2")
cd "$(dirname "$0")/../.."
version=$(tools/release/version.sh)
awk -v title="## $version" '/^## / { on = ($0 == title); next } on' CHANGELOG.md | sed '/./,$!d' >"$notes"
if [ ! -s "$notes" ]; then
    echo "failed to write the release notes: CHANGELOG.md has no section $version" >&2
    exit 1
fi
cd "$dir"
rm -f SHA256SUMS
sums=$(sha256sum -- *)
echo "$sums" >SHA256SUMS
