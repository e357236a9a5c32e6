#!/usr/bin/env python3
"""Prints your IP address, and your country if the key's scope includes it."""
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
except HTTPError as error:
    body = json.load(error)
    print(f"{body['error']}: {body['message']}", file=sys.stderr)
    # The daily quota resets at midnight UTC. A paused key (403) stays paused until its owner resumes it.
    if "enterprise" in body:
        print(f"Try again in {error.headers['Retry-After']} s.", file=sys.stderr)
    sys.exit(1)

print(" ".join(filter(None, [body["ip"] or body["ipv6"], body.get("country")])))
# [/docs]
