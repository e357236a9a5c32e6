#!/usr/bin/env bash
# old_version.sh COMMIT: builds the program as of a commit, once, and says where it is.
set -euo pipefail
source=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
commit=$(git -C "$source" rev-parse --verify --quiet "$1^{commit}") || { echo "there is no commit $1 here; fetch the whole history" >&2; exit 1; }
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-$source/target}")
folder=$target/old/$commit
if [ ! -x "$folder/ipseity" ]; then
    if [ ! -d "$folder/source" ]; then
        mkdir -p "$folder/part"
        # Now is the time of every file: cargo takes what is older than what it has built for built, and crates of both versions have one name.
        git -C "$source" archive "$commit" | tar --extract --touch --directory "$folder/part"
        mv "$folder/part" "$folder/source"
    fi
    if [ -d "$target/debug" ] && [ ! -d "$folder/target" ]; then
        # Dependencies that are the same are not compiled again. Never in the folder itself, where the crates of both would be mixed.
        mkdir -p "$folder/target"
        cp --archive --reflink=auto "$target/debug" "$folder/target/debug"
    fi
    (cd "$folder/source" && CARGO_TARGET_DIR=$folder/target cargo build --quiet --locked -p ipseity-server)
    mv "$folder/target/debug/ipseity" "$folder/ipseity"
    rm -rf "$folder/target"
fi
echo "$folder/ipseity"
