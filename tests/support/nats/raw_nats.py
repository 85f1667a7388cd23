"""Publishes what no client library lets one publish: subjects and headers byte by byte."""

from __future__ import annotations

import socket

_CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'


def raw_publish(port: int, subject: bytes, body: bytes = b"", headers: bytes = b"") -> None:
    """Publish one message; ``headers`` are lines after ``NATS/1.0``, each ended by CR LF. Fails if it is refused."""
    if headers:
        block = b"NATS/1.0" + headers + b"\r\n"
        command = b"HPUB %s %d %d\r\n%s%s\r\n" % (subject, len(block), len(block) + len(body), block, body)
    else:
        command = b"PUB %s %d\r\n%s\r\n" % (subject, len(body), body)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.recv(65536)  # INFO
        connection.sendall(_CONNECT + command + b"PING\r\n")
        answer = b""
        while b"PONG\r\n" not in answer:
            answer += connection.recv(65536)
    assert b"-ERR" not in answer, answer


# What a server takes and a reader may stumble over; keys are what stands in a test's name.
ODD_TOKENS: dict[str, bytes] = {
    "no UTF-8": b"\xff\xfe",
    "vertical tab": b"a\x0bb",
    "form feed": b"a\x0cb",
    "null": b"a\x00b",
    "terminal escape": b"\x1b[2J\x1b]0;owned\x07",
    "wildcards": b"*.>",
    "no escaped name": b"=ZZ.=",
    "lone surrogate": b"=ED=A0=80",
    "letters": "é.日本".encode(),
    "long": b"x" * 3000,
}

ODD_HEADERS: dict[str, bytes] = {
    "status of the server": b"\r\nStatus: 500\r\nDescription: no\r\n",
    "status alone": b"\r\nStatus: 503\r\n",
    "inline status": b" 503 No Responders\r\n",
    "heartbeat": b" 100 Idle Heartbeat\r\n",
    "no name": b"\r\n: x\r\n",
    "no UTF-8": b"\r\n\xff: \xff\r\ntraceparent: \xff\xfe\r\n",
    "broken trace": b"\r\ntraceparent: 00-zz\r\ntracestate: \x00\r\n",
    "escape": b"\r\nTrellis-Reason: \x1b[2J\r\nTrellis-Error: [bold]x\x1b[31m\r\nTrellis-Deliveries: many\r\n",
    "broken letter": b"\r\nTrellis-Headers: {\r\nTrellis-Subject: a b\r\nTrellis-Sequence: -1\r\n",
    "digits": b"\r\nTrellis-Sequence: " + b"9" * 5000 + b"\r\nTrellis-Truncated: x\r\nTrellis-Headers: [1]\r\n",
}

ODD_BODIES: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"\x00\xff{",
    "no object": b"[1]",
    "empty object": b"{}",
    "wrong types": b'{"traceparent": 5, "source": [], "data": {"message": {"a": 1}}, "type": null}',
    "deep": b'{"a":' * 400 + b"1" + b"}" * 400,
    "deepest": b"[" * 100_000,
    "surrogate": b'{"a": "\\ud800"}',
    "large number": b'{"data": {"attempt": 1e999}}',
}
