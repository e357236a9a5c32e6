#!/usr/bin/env bash
# privacy.sh ROUNDS: sends canaries through every route in this many rounds, searches all written data for them and prints a report.
set -euo pipefail
report="$(mktemp)"
trap 'rm -f "$report"' EXIT
succeeded=true
IPSEITY_PRIVACY_ROUNDS="$1" IPSEITY_PRIVACY_REPORT="$report" \
    cargo test --quiet --workspace --features ipseity-server/failpoints --test blackbox -- privacy:: || succeeded=false
cat "$report"
passed="$(grep -c '^passed' "$report" || true)"
failed="$(grep -c '^FAILED' "$report" || true)"
# A test that crashed has reported no failed check.
if ! $succeeded && ((failed == 0)); then failed=1; fi
echo "$passed passed, $failed failed"
((failed == 0))
