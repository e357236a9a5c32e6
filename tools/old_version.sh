#!/usr/bin/env bash
# old_version.sh COMMIT: builds the program as of a commit, once, and says where it is.
set -euo pipefail
source=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
commit=$(git -C "$source" rev-parse --verify --quiet "$1^{commit}") || { echo "there is no commit $1 here; fetch the whole history" >&2; exit 1; }
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-$source/target}")
program=$target/old/$commit/ipseity
if [ ! -x "$program" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    git -C "$source" archive "$commit" | tar --extract --directory "$folder"
    # In the same target folder, so that dependencies that are the same are not compiled again.
    (cd "$folder" && CARGO_TARGET_DIR=$target cargo build --quiet --locked -p server)
    install -D "$target/debug/ipseity" "$program"
fi
echo "$program"
