#!/usr/bin/env bash
# Prints your address, and your country where the key's scope has it.
set -euo pipefail
# [docs]
answer=$(curl --silent --show-error --max-time 10 \
    --header "Authorization: Bearer $IPSEITY_KEY" \
    --write-out '\n%{http_code} %header{retry-after}' \
    "${IPSEITY_URL:-https://ip.example}/api/v1/ip")
body=${answer%$'\n'*}
read -r status retry_after <<<"${answer##*$'\n'}" || true

if [ "$status" = 200 ]; then
    jq --raw-output '[.ip // .ipv6, .country] | map(values) | join(" ")' <<<"$body"
    exit
fi
jq --raw-output '"\(.error): \(.message)"' <<<"$body" >&2
# A spent day heals at midnight UTC. A paused key (403) does not: its owner has to resume it.
if jq --exit-status '.enterprise' <<<"$body" >/dev/null; then
    echo "Try again in $retry_after s." >&2
fi
exit 1
# [/docs]
