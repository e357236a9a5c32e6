#!/usr/bin/env bash
# Prints a new ticket as JSON.
set -euo pipefail
# [docs]
curl --silent --show-error --fail-with-body --max-time 10 \
    --header "Authorization: Bearer $IPSEITY_KEY" \
    --header 'Content-Type: application/json' \
    --data '{"scope": "geo", "lifetime_s": 60, "uses": 1}' \
    "${IPSEITY_URL:-https://ip.example}/api/v1/tickets"
# [/docs]
