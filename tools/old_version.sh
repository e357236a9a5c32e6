#!/usr/bin/env bash
# old_version.sh COMMIT: builds ipseity at a commit, once, and prints the path of the binary.
set -euo pipefail
source=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
commit=$(git -C "$source" rev-parse --verify --quiet "$1^{commit}") || { echo "unknown commit $1; fetch the whole history" >&2; exit 1; }
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-$source/target}")
dir=$target/old/$commit
if [ ! -x "$dir/ipseity" ]; then
    if [ ! -d "$dir/source" ]; then
        mkdir -p "$dir/part"
        # Set all file times to now, because cargo would take older files for already built: both versions have the same crate names.
        git -C "$source" archive "$commit" | tar --extract --touch --directory "$dir/part"
        mv "$dir/part" "$dir/source"
    fi
    if [ -d "$target/debug" ] && [ ! -d "$dir/target" ]; then
        # Copy the build to reuse its dependencies. A shared directory would mix the crates of both versions.
        mkdir -p "$dir/target"
        cp --archive --reflink=auto "$target/debug" "$dir/target/debug"
    fi
    (cd "$dir/source" && CARGO_TARGET_DIR=$dir/target cargo build --quiet --locked -p ipseity-server)
    mv "$dir/target/debug/ipseity" "$dir/ipseity"
    rm -rf "$dir/target"
fi
echo "$dir/ipseity"
