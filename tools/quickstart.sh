#!/usr/bin/env bash
# Runs README's quick start as it is written, in a clean clone, and looks at what comes out.
set -euo pipefail
source=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
# The clone is clean; what was compiled from the same source is not compiled again.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$source/target}
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
git clone --quiet "$source" "$folder/ipseity"
cd "$folder/ipseity"

# The first block of README marked `sh quickstart`.
awk '/^```sh quickstart$/ { on = 1; next } /^```$/ { if (on) exit } on' README.md >"$folder/quickstart.sh"
[ -s "$folder/quickstart.sh" ] || { echo "README.md has no block marked 'sh quickstart'"; exit 1; }
# A line that fails must end the house that runs in the background as well.
timeout 1800 bash -euc 'trap "kill \$(jobs -p) 2>/dev/null || true; wait" EXIT; source "$1"' -- "$folder/quickstart.sh" | tee "$folder/answer"

grep -q '"status":"success"' "$folder/answer" || { echo "no answer came"; exit 1; }
grep -q '"tls_version":"TLSv1.3"' "$folder/answer" || { echo "the answer did not come over TLS"; exit 1; }
echo "quick start: 1 passed, 0 failed"
