#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""blob_faults.py PORT - an S3 server with the faults that the object's name selects, for blob_faults.sh.

It computes the signature of each request (AWS signature, version 4) itself, from the headers as received, and prints
one line for each request: "METHOD NAME signed" or the reason why the signature is wrong."""
import hashlib
import hmac
import http.server
import sys
import time
import urllib.parse

SECRET, BUCKET, PAGE = "test-secret", "/bucket/", "<ListBucketResult>%s</ListBucketResult>"
seen = {}


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def quote(text):
    return urllib.parse.quote(text, safe="-._~")


def fault_of_signature(request):
    """"" if the signature is that of the specification."""
    kind, _, rest = request.headers["Authorization"].partition(" ")
    part = dict(p.strip().split("=", 1) for p in rest.split(","))
    access, day, region, service, end = part["Credential"].split("/")
    names = part["SignedHeaders"].split(";")
    absent = [n for n in names if n not in request.headers]
    if absent or names != sorted(names):
        return f"signed headers: {names}, absent: {absent}"
    must = {n.lower() for n in request.headers if n.lower().startswith("x-amz-")} | {"host"}
    if not must <= set(names):
        return f"not signed: {must - set(names)}"
    url = urllib.parse.urlsplit(request.path)
    query = urllib.parse.parse_qsl(url.query, keep_blank_values=True)
    canonical = "\n".join([
        request.command, urllib.parse.quote(urllib.parse.unquote(url.path), safe="/-._~"),
        "&".join(sorted(f"{quote(k)}={quote(v)}" for k, v in query)),
        "".join(f"{n}:{' '.join(request.headers[n].split())}\n" for n in names),
        part["SignedHeaders"], request.headers["x-amz-content-sha256"]])
    scope = "/".join([day, region, service, end])
    text = "\n".join([kind, request.headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = mac(mac(mac(mac(("AWS4" + SECRET).encode(), day), region), service), end)
    good = hmac.compare_digest(mac(key, text).hex(), part["Signature"])
    return "" if good and (access, region, service) == ("test-id", "eu-x-1", "s3") else "signature differs"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", length=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, code):
        self.reply(status, f"<Error><Code>{code}</Code></Error>".encode())

    def list_page(self, prefix, token):
        """Names out of order, a token with all kinds of bytes, and pages without end."""
        odd = "a+b/c=d&e f~%\u00e9"
        if prefix == "pages/" and not token:
            return ("<Contents><Key>pages/b</Key></Contents><Contents><Key>pages/b c</Key></Contents><Contents><Key>other"
                    "</Key></Contents><IsTruncated>true</IsTruncated><NextContinuationToken>" + odd.replace("&", "&amp;") +
                    "</NextContinuationToken>")
        if prefix == "pages/":
            return "<Contents><Key>pages/a</Key></Contents><IsTruncated>false</IsTruncated>" if token == odd else "<"
        if prefix == "loop":
            return "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
        if prefix == "promise":
            return "<IsTruncated>true</IsTruncated>"
        return "<Contents>"

    def serve(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        name = query.get("prefix", url.path[len(BUCKET):])
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        wrong = fault_of_signature(self)
        print(self.command, name, wrong or "signed", "token" if "x-amz-security-token" in self.headers else "",
              flush=True)
        seen[name] = seen.get(name, 0) + 1
        if wrong:
            self.error(403, "SignatureDoesNotMatch")
        elif "prefix" in query:
            self.reply(200, (PAGE % self.list_page(name, query.get("continuation-token"))).encode())
        elif name.startswith("twice-") and seen[name] <= 2:
            if name == "twice-cut":
                self.reply(200, b"o", 2)
                self.close_connection = True
            else:
                self.error(int(name[6:]), "SlowDown" if name == "twice-503" else "InternalError")
        elif name.startswith("always-"):
            status, _, code = name[7:].partition("-")
            self.error(int(status), code)
        elif name == "plain":
            # a server without conditional requests
            if self.command == "GET":
                self.error(404, "NoSuchKey")
            elif "If-None-Match" in self.headers:
                self.error(501, "NotImplemented")
            else:
                self.reply(200)
        elif name == "silent":
            time.sleep(60)
        elif name == "slow":
            self.send_response(200)
            self.send_header("Content-Length", "8")
            self.end_headers()
            for _ in range(8):
                time.sleep(0.5)
                self.wfile.write(b"x")
        elif name == "large":
            self.reply(200, bytes((64 << 20) + 1))
        else:
            self.reply(200, b"ok")

    do_GET = do_PUT = do_DELETE = serve


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """The client has ended."""


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
