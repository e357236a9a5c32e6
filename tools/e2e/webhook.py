"""An HTTP server on 127.0.0.1 that receives webhooks. Each request becomes a file (.json) in a folder.

Usage: webhook.py FOLDER. Prints the port that it listens on, and ends on SIGTERM.
       webhook.py FOLDER SECRET. Checks the signatures of all requests with the reference library. Prints their number.
"""

import http.server
import itertools
import json
import pathlib
import sys

from standardwebhooks import Webhook


class FolderHandler(http.server.BaseHTTPRequestHandler):
    """Accepts every request."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        name = f"{next(self.server.numbers):04}"
        # Renamed when complete, so that a reader never finds a partial file.
        partial = self.server.path / f"{name}.partial"
        headers = {key.lower(): value for key, value in self.headers.items()}
        partial.write_text(json.dumps({"headers": headers, "body": body}))
        partial.rename(self.server.path / f"{name}.json")
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_arguments):
        pass


def serve(path):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FolderHandler)
    server.path, server.numbers = path, itertools.count(1)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def verify(path, secret):
    requests = [json.loads(file.read_text()) for file in sorted(path.glob("*.json"))]
    for request in requests:
        Webhook(secret).verify(request["body"], request["headers"])
    print(len(requests))


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    if len(sys.argv) == 2:
        serve(folder)
    else:
        verify(folder, sys.argv[2])
