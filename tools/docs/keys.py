"""A schemathesis hook that rotates through many keys, so that none is paused."""

import itertools
import os

import schemathesis

KEYS = itertools.cycle(os.environ["IPSEITY_KEYS"].split(","))


@schemathesis.auth(refresh_interval=None)
class NextKey:
    """Sends the next key as a bearer token."""

    def get(self, _case, _context):
        return next(KEYS)

    def set(self, case, key, _context):
        case.headers["Authorization"] = f"Bearer {key}"
