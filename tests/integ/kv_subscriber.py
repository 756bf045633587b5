# SPDX-License-Identifier: Apache-2.0
"""Subscribe to a master's KV events and print each as a line of JSON, preceded by the message's number.

ENDPOINT [PUBLIC_KEY_OF_THE_MASTER FILE_WITH_OUR_SECRET_KEY]"""
import json
import sys

import msgpack
import zmq

socket = zmq.Context().socket(zmq.SUB)
socket.setsockopt(zmq.SUBSCRIBE, b"")
if len(sys.argv) == 4:
    with open(sys.argv[3], encoding="ascii") as file:
        secret = file.read().split("\n")[1].encode()
    socket.curve_secretkey, socket.curve_publickey = secret, zmq.curve_public(secret)
    socket.curve_serverkey = sys.argv[2].encode()
socket.connect(sys.argv[1])
while True:
    parts = socket.recv_multipart()
    assert len(parts) == 3 and parts[0] == b"" and len(parts[1]) == 8, parts
    number = int.from_bytes(parts[1], "big")
    batch = msgpack.unpackb(parts[2], raw=False)
    assert len(batch) == 3 and batch[2] == 0 and isinstance(batch[0], int), batch
    for event in batch[1]:
        print(json.dumps({"number": number, **event}, default=lambda b: b.hex()), flush=True)
