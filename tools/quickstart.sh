#!/usr/bin/env bash
# Runs README's quick start in a clean clone and checks its output.
set -euo pipefail
source=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
# The clone is clean, but reuses the build of the same sources.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$source/target}
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$dir"' EXIT
git clone --quiet "$source" "$dir/ipseity"
cd "$dir/ipseity"

# The first block of README marked `sh quickstart`.
awk '/^```sh quickstart$/ { on = 1; next } /^```$/ { if (on) exit } on' README.md >"$dir/quickstart.sh"
[ -s "$dir/quickstart.sh" ] || { echo "README.md has no block marked 'sh quickstart'"; exit 1; }
# A failing line must also end the deployment in the background.
timeout 1800 bash -euc 'trap "kill \$(jobs -p) 2>/dev/null || true; wait" EXIT; source "$1"' -- "$dir/quickstart.sh" | tee "$dir/output"

grep -q '"status":"success"' "$dir/output" || { echo "the lookup failed"; exit 1; }
grep -q '"tls_version":"TLSv1.3"' "$dir/output" || { echo "the lookup did not use TLS"; exit 1; }
echo "quick start: 1 passed, 0 failed"
