#!/usr/bin/env bash
# The privacy proof: privacy.sh ROUNDS. Sends canaries through everything so many times, searches all that was written, and tells what was checked.
set -euo pipefail
report="$(mktemp)"
trap 'rm -f "$report"' EXIT
has_ended_well=true
IPSEITY_PRIVACY_ROUNDS="$1" IPSEITY_PRIVACY_REPORT="$report" \
    cargo test --quiet --workspace --features ipseity-server/failpoints --test blackbox -- privacy:: || has_ended_well=false
cat "$report"
passed="$(grep -c '^passed' "$report" || true)"
failed="$(grep -c '^FAILED' "$report" || true)"
# A test that broke off has told of no check that failed.
if ! $has_ended_well && ((failed == 0)); then failed=1; fi
echo "$passed passed, $failed failed"
((failed == 0))
