#!/usr/bin/env bash
# Prints your IP address, and your country if the key's scope includes it.
set -euo pipefail
# [docs]
response=$(curl --silent --show-error --max-time 10 \
    --header "Authorization: Bearer $IPSEITY_KEY" \
    --write-out '\n%{http_code} %header{retry-after}' \
    "${IPSEITY_URL:-https://ip.example}/api/v1/ip")
body=${response%$'\n'*}
read -r status retry_after <<<"${response##*$'\n'}" || true

if [ "$status" = 200 ]; then
    jq --raw-output '[.ip // .ipv6, .country] | map(values) | join(" ")' <<<"$body"
    exit
fi
jq --raw-output '"\(.error): \(.message)"' <<<"$body" >&2
# The daily quota resets at midnight UTC. A paused key (403) stays paused until its owner resumes it.
if jq --exit-status '.enterprise' <<<"$body" >/dev/null; then
    echo "Try again in $retry_after s." >&2
fi
exit 1
# [/docs]
