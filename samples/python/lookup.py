#!/usr/bin/env python3
"""Prints your address, and your country where the key's scope has it."""
# [docs]
import json
import os
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

url = os.environ.get("IPSEITY_URL", "https://ip.example")
request = Request(f"{url}/api/v1/ip", headers={"Authorization": f"Bearer {os.environ['IPSEITY_KEY']}"})

try:
    with urlopen(request, timeout=10) as response:
        body = json.load(response)
except HTTPError as refusal:
    body = json.load(refusal)
    print(f"{body['error']}: {body['message']}", file=sys.stderr)
    # A spent day heals at midnight UTC. A paused key (403) does not: its owner has to resume it.
    if "enterprise" in body:
        print(f"Try again in {refusal.headers['Retry-After']} s.", file=sys.stderr)
    sys.exit(1)

print(" ".join(filter(None, [body["ip"] or body["ipv6"], body.get("country")])))
# [/docs]
