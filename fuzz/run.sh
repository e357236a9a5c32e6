#!/usr/bin/env bash
# Usage: fuzz/run.sh SECONDS [TARGET…]
# Builds the fuzz program and runs each target, or those that are named, for SECONDS. New inputs go to fuzz/corpus, and
# inputs that fail to fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
if (($#)); then targets=("$@"); else targets=($(ls fuzz/seeds)); fi
# Only the crates of this project are built again. Coverage of their dependencies is not measured.
RUSTC_WORKSPACE_WRAPPER="$PWD/fuzz/rustc.sh" cargo build --quiet --workspace \
    --features ipseity-server/failpoints,ipseity-fuzz/libfuzzer --bin fuzz
mkdir -p fuzz/artifacts
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for target in "${targets[@]}"; do
    mkdir -p "fuzz/corpus/$target"
    FUZZ_TARGET=$target "${CARGO_TARGET_DIR:-target}/debug/fuzz" "fuzz/corpus/$target" "fuzz/seeds/$target" \
        -max_total_time="$seconds" -max_len=8192 -rss_limit_mb=1024 -timeout=30 -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="fuzz/artifacts/$target-" >"$log" 2>&1 || { cat "$log"; exit 1; }
    echo "$target: $(awk '/number_of_executed_units/ { print $2 }' "$log") executions, 0 crashes"
done
