#!/usr/bin/env bash
# old_version.sh COMMIT: builds the program as of a commit, once, and says where it is.
set -euo pipefail
source=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
commit=$(git -C "$source" rev-parse --verify --quiet "$1^{commit}") || { echo "there is no commit $1 here; fetch the whole history" >&2; exit 1; }
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-$source/target}")
folder=$target/old/$commit
if [ ! -x "$folder/ipseity" ]; then
    # Always at the same place, so that a build that was cut off goes on where it was.
    [ -d "$folder/source" ] || { mkdir -p "$folder/part" && git -C "$source" archive "$commit" | tar --extract --directory "$folder/part" && mv "$folder/part" "$folder/source"; }
    # In the same target folder, so that dependencies that are the same are not compiled again.
    (cd "$folder/source" && CARGO_TARGET_DIR=$target cargo build --quiet --locked -p server)
    cp "$target/debug/ipseity" "$folder/ipseity"
fi
echo "$folder/ipseity"
