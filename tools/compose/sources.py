"""Serves the files of a directory over HTTPS on port 8443 of loopback.

Usage: python3 tools/compose/sources.py DIR CERTIFICATE PRIVATE_KEY
"""

import functools
import http.server
import ssl
import sys

directory, certificate, private_key = sys.argv[1:]
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(certificate, private_key)
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=directory)
with http.server.ThreadingHTTPServer(("127.0.0.1", 8443), handler) as server:
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
