"""A schemathesis hook that rotates through many keys, so that none is paused. The management API gets a personal token."""

import itertools
import os

import schemathesis

KEYS = itertools.cycle(os.environ["IPSEITY_KEYS"].split(","))
TOKEN = os.environ["IPSEITY_TOKEN"]


@schemathesis.auth(refresh_interval=None)
class NextKey:
    """Sends the next key as a bearer token."""

    def get(self, _case, _context):
        return next(KEYS)

    def set(self, case, key, _context):
        credential = TOKEN if case.operation.path.startswith("/api/v1/manage/") else key
        case.headers["Authorization"] = f"Bearer {credential}"
