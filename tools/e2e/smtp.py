"""An SMTP server on 127.0.0.1 that delivers nothing. Each email becomes two files in a folder: raw (.eml) and decoded (.json).

Usage: smtp.py FOLDER. Prints the port that it listens on, and ends on SIGTERM.
"""

import asyncio
import email
import email.policy
import itertools
import json
import pathlib
import sys

from aiosmtpd.smtp import SMTP


class FolderHandler:
    """Accepts every email."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.numbers = itertools.count(1)

    async def handle_DATA(self, _server, _session, envelope):
        name = f"{next(self.numbers):04}"
        (self.path / f"{name}.eml").write_bytes(envelope.content)
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        body = message.get_body(preferencelist=("plain", "html"))
        text = body.get_content() if body else ""
        decoded = {"from": envelope.mail_from, "to": envelope.rcpt_tos, "subject": str(message["subject"]), "text": text}
        # Renamed when complete, so that a reader never finds a partial file.
        partial = self.path / f"{name}.partial"
        partial.write_text(json.dumps(decoded))
        partial.rename(self.path / f"{name}.json")
        return "250 accepted"


async def main(folder):
    loop = asyncio.get_running_loop()
    handler = FolderHandler(folder)
    server = await loop.create_server(lambda: SMTP(handler, loop=loop, enable_SMTPUTF8=True), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
