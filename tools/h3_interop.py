#!/usr/bin/env python3
"""Sends HTTP/3 requests with aioquic, an independent stack, and compares the response fields with the client's view."""

import asyncio
import json
import ssl
from collections import defaultdict
from urllib.parse import urlsplit

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.tls import CipherSuite

from deployment import Deployment

SUITES = {
    CipherSuite.AES_128_GCM_SHA256: "TLS_AES_128_GCM_SHA256",
    CipherSuite.AES_256_GCM_SHA384: "TLS_AES_256_GCM_SHA384",
    CipherSuite.CHACHA20_POLY1305_SHA256: "TLS_CHACHA20_POLY1305_SHA256",
}
REQUESTS = 50
ATTEMPTS_MAX = 10


class Http3Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        self.headers, self.bodies, self.done = {}, defaultdict(bytes), {}

    def quic_event_received(self, event):
        for h3_event in self.http.handle_event(event):
            if isinstance(h3_event, HeadersReceived):
                self.headers[h3_event.stream_id] = dict(h3_event.headers)
            elif isinstance(h3_event, DataReceived):
                self.bodies[h3_event.stream_id] += h3_event.data
            if h3_event.stream_ended:
                self.done[h3_event.stream_id].set_result(None)

    async def get(self, host, path, key):
        stream = self._quic.get_next_available_stream_id()
        self.done[stream] = asyncio.get_running_loop().create_future()
        headers = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", host.encode()), (b":path", path.encode())]
        self.http.send_headers(stream, headers + [(b"authorization", f"Bearer {key}".encode())], end_stream=True)
        self.transmit()
        await asyncio.wait_for(self.done[stream], 20)
        return int(self.headers[stream][b":status"]), self.bodies[stream]


async def check_suite(deployment, suite):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, cipher_suites=[suite], server_name="localhost")
    configuration.load_verify_locations(deployment["ca"])
    configuration.verify_mode = ssl.CERT_REQUIRED
    port = urlsplit(deployment["https"]).port
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Http3Client) as client:
        key = deployment["keys"]["full"]
        responses = await asyncio.gather(*(client.get("localhost", "/api/v1/meta", key) for _ in range(REQUESTS)))
        assert [status for status, _ in responses] == [200] * REQUESTS
        for _ in range(ATTEMPTS_MAX):
            status, body = await client.get("localhost", "/api/v1/ip", key)
            # On a busy machine, Redis may exceed its timeout.
            if status == 200:
                break
        lookup = json.loads(body)
        facts = [lookup[name] for name in ("ip", "http_protocol", "tls_version", "tls_cipher")]
        assert facts == ["127.0.0.1", "HTTP/3", "TLSv1.3", SUITES[suite]], facts
        assert lookup["rtt"] is not None


def main():
    with Deployment(settings=[]) as deployment:
        for suite in SUITES:
            asyncio.run(check_suite(deployment.info, suite))
    print(f"aioquic: {len(SUITES)} cipher suites, {len(SUITES) * REQUESTS} requests, all successful and consistent")


main()
