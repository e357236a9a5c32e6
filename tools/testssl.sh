#!/usr/bin/env bash
# Runs testssl.sh against a running deployment and fails on findings of the service with severity medium or higher.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$dir"' EXIT
"$target/debug/dev" --json >"$dir/deployment.json" &
for _ in $(seq 300); do
    [ -s "$dir/deployment.json" ] && break
    sleep 0.2
done
program=$(command -v testssl || command -v testssl.sh)
"$program" --quiet --color 0 --warnings batch --add-ca "$(jq -r .ca "$dir/deployment.json")" \
    --jsonfile "$dir/report.json" "localhost:$(jq -r .https "$dir/deployment.json" | sed 's|.*:||')" >"$dir/report.txt" || true
[ -s "$dir/report.json" ] || { cat "$dir/report.txt"; exit 1; }
# The test certificate authority offers no revocation.
ours='select(.id | test("^cert_revocation") | not)'
jq -r ".[] | select(.severity | test(\"MEDIUM|HIGH|CRITICAL\")) | $ours | \"\(.severity) \(.id): \(.finding)\"" "$dir/report.json" >"$dir/failures"
jq -r '.[] | select(.id | test("^(SSLv|TLS1|ALPN|FS|heartbleed|ROBOT|BEAST|LUCKY13|secure_client_renego|fallback_SCSV)")) | "\(.severity) \(.id): \(.finding)"' "$dir/report.json"
if [ -s "$dir/failures" ]; then
    cat "$dir/failures"
    exit 1
fi
echo "testssl: $(jq length "$dir/report.json") findings, none with severity medium or higher"
