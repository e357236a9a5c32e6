#!/usr/bin/env bash
# Rates the TLS of a running house with testssl.sh, and fails on anything medium or worse that is the service's to mend.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
"$target/debug/dev" --json >"$folder/house.json" &
for _ in $(seq 300); do
    [ -s "$folder/house.json" ] && break
    sleep 0.2
done
program=$(command -v testssl || command -v testssl.sh)
"$program" --quiet --color 0 --warnings batch --add-ca "$(jq -r .ca "$folder/house.json")" \
    --jsonfile "$folder/report.json" "localhost:$(jq -r .https "$folder/house.json" | sed 's|.*:||')" >"$folder/report.txt" || true
[ -s "$folder/report.json" ] || { cat "$folder/report.txt"; exit 1; }
# A throw-away authority offers no revocation; that is nothing of ours.
ours='select(.id | test("^cert_revocation") | not)'
jq -r ".[] | select(.severity | test(\"MEDIUM|HIGH|CRITICAL\")) | $ours | \"\(.severity) \(.id): \(.finding)\"" "$folder/report.json" >"$folder/bad"
jq -r '.[] | select(.id | test("^(SSLv|TLS1|ALPN|FS|heartbleed|ROBOT|BEAST|LUCKY13|secure_client_renego|fallback_SCSV)")) | "\(.severity) \(.id): \(.finding)"' "$folder/report.json"
if [ -s "$folder/bad" ]; then
    cat "$folder/bad"
    exit 1
fi
echo "testssl: $(jq length "$folder/report.json") findings, none medium or worse"
