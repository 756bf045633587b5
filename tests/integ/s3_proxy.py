#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""s3_proxy.py PORT SERVER_PORT FILE - pass requests on to an S3 server, with the fault that FILE names:

    ok              none
    status N        N is the answer to each request
    some PERCENT    that many requests fail: by a status of 5xx, by a connection that ends, or by an answer that is lost
                    after the server has carried out the request
    delay SECONDS   each request takes so long
    hang            no answer, until FILE names another fault
"""
import http.client
import http.server
import random
import sys
import time

SERVER, FILE = int(sys.argv[2]), sys.argv[3]


def fault():
    with open(FILE, encoding="ascii") as file:
        return (file.read().split() + ["ok", "0"])[:2]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, headers, body):
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status):
        self.answer(status, [], f"<Error><Code>Fault{status}</Code></Error>".encode())

    def forward(self, body):
        server = http.client.HTTPConnection("127.0.0.1", SERVER, timeout=60)
        server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            server.putheader(name, value)
        server.endheaders(body)
        reply = server.getresponse()
        got = reply.status, reply.getheaders(), reply.read()
        server.close()
        return got

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind, value = fault()
        while kind == "hang":
            time.sleep(0.05)
            kind, value = fault()
        if kind == "delay":
            time.sleep(float(value))
        if kind == "status":
            self.refuse(int(value))
            return
        hit = random.randrange(3) if kind == "some" and random.random() * 100 < float(value) else None
        if hit == 0:
            self.refuse(random.choice([500, 502, 503]))
            return
        if hit != 1:
            status, headers, answer = self.forward(body)
        if hit in (1, 2):
            self.close_connection = True
            return
        self.answer(status, headers, answer)

    do_GET = do_PUT = do_DELETE = do_HEAD = serve


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        """The client or the server has ended."""


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
