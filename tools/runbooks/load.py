"""Callers that send lookups with real keys while a runbook is followed."""

import collections
import http.client
import json
import ssl
import threading
import time

HOST = "ip.example.com"
INTERVAL_S = 0.4
TIMEOUT_S = 15
# Of each key.
REQUESTS_MIN = 3


def connect(certificate, port=443):
    return http.client.HTTPSConnection(HOST, port, timeout=TIMEOUT_S, context=ssl.create_default_context(cafile=certificate))


def request(path, key, certificate, port=443):
    """Sends a request over a new connection; returns status, headers and body."""
    connection = connect(certificate, port)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), json.loads(response.read())
    finally:
        connection.close()


class Load:
    """Runs in its `with` block. Each key is below the burst limit."""

    def __init__(self, keys, certificate, ports=(443,)):
        self.certificate, self.stopped = certificate, threading.Event()
        self.outcomes, self.failures, self.slowest_s = collections.Counter(), [], 0.0
        self.threads = [threading.Thread(target=self.call, args=(key, port)) for port in ports for key in keys]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def call(self, key, port):
        finished = 0
        while not self.stopped.is_set() or finished < REQUESTS_MIN:
            finished += 1
            started = time.monotonic()
            try:
                outcome = request("/api/v1/ip", key, self.certificate, port)[0]
            except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
                outcome = repr(error)
            took = time.monotonic() - started
            self.slowest_s = max(self.slowest_s, took)
            self.outcomes[outcome] += 1
            if outcome != 200:
                self.failures.append(f"{time.strftime('%H:%M:%S')} {outcome}")
            self.stopped.wait(max(0, INTERVAL_S - took))

    def __str__(self):
        outcomes = ", ".join(f"{count} × {outcome}" for outcome, count in self.outcomes.items())
        return f"{outcomes}; slowest {self.slowest_s * 1000:.0f} ms" + (f"; first failures: {self.failures[:5]}" if self.failures else "")
