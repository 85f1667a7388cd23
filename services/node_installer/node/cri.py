"""Queries version and handlers of the running container runtime, and stops pods, over its CRI socket.

In: a Unix socket. Out: version and runtimes, None without an answer in time. Called by ``runtime``.
Source: CRI ``runtime.v1`` ``Version``, ``Status`` (verbose) and ``StopPodSandbox`` as unary gRPC over HTTP/2 (RFC
9113). Three calls do not justify gRPC's 30 MB in the image: requests are two frames with literal headers (RFC 7541,
6.2.2), of the answer only DATA frames are read.
Invariant: an answer means that the runtime serves calls; an open socket alone does not (the kernel accepts for it).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from node_installer.domain.inspection import Live
from trellis.installer_api.json_text import read_json

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 1, 1, 4, 8
_VERBOSE: Final = b"\x08\x01"  # StatusRequest, field 1 as a varint
_BIG_WINDOW: Final = (1 << 24) - 1


def ask(path: Path, seconds: float) -> Live | None:
    """Return the runtime that answers on the socket, None without an answer in time. Never raises."""
    deadline = time.monotonic() + seconds
    try:
        version = dict(_fields(_call(path, "Version", b"", deadline)))
        status = _call(path, "Status", _VERBOSE, deadline)
        config = _config(status)
        return Live(bytes(version.get(3, b"")).decode(), _runtimes(config), _systemd_cgroup(config))
    except (OSError, ValueError, IndexError, struct.error):
        return None


def stop(path: Path, sandbox: str, deadline: float) -> bool:
    """Stop a pod's sandbox and all of its containers; False if they are not stopped by then. Never raises."""
    name = sandbox.encode()
    if not 0 < len(name) < 128:  # the request has one byte for the length
        return False
    try:
        _call(path, "StopPodSandbox", b"\x0a" + bytes((len(name),)) + name, deadline)
    except (OSError, ValueError, IndexError, struct.error):
        return False
    return True


def _config(status: bytes) -> dict[str, Any]:
    """Return the section ``containerd`` of a StatusResponse's ``info["config"]``, the configuration in use, as JSON."""
    for number, value in _fields(status):
        entry = dict(_fields(value)) if number == 2 else {}
        if entry.get(1) == b"config":
            return _table(_table(read_json(entry.get(2, b"{}"))).get("containerd"))
    return {}


def _runtimes(config: dict[str, Any]) -> Mapping[str, str] | None:
    runtimes = config.get("runtimes")
    if not isinstance(runtimes, dict):
        return None
    # runtimeType in containerd 1 and 2; an absolute path may stand in runtimePath.
    return {
        handler: str(table.get("runtimePath") or table.get("runtimeType") or "")
        for handler, table in runtimes.items()
        if isinstance(table, dict)
    }


def _systemd_cgroup(config: dict[str, Any]) -> bool:
    """Return whether the default runtime, which is runc or takes its options, uses the cgroup driver systemd."""
    default = config.get("defaultRuntimeName")
    table = _table(_table(config.get("runtimes")).get(default)) if isinstance(default, str) else {}
    return _table(table.get("options")).get("SystemdCgroup") is True


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _call(path: Path, method: str, request: bytes, deadline: float) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(max(0.05, deadline - time.monotonic()))
        _connect(connection, path)
        headers = b"".join(
            _literal(name, value)
            for name, value in (
                (":method", "POST"),
                (":scheme", "http"),
                (":path", f"/runtime.v1.RuntimeService/{method}"),
                (":authority", "localhost"),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
            )
        )
        connection.sendall(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, _BIG_WINDOW))
            + _frame(_WINDOW, 0, 0, struct.pack(">I", _BIG_WINDOW))
            + _frame(_HEADERS, _END_HEADERS, 1, headers)
            + _frame(_DATA, _END_STREAM, 1, b"\0" + struct.pack(">I", len(request)) + request)
        )
        body = _answer(connection, deadline)
    if len(body) < 5 or body[0] != 0:
        raise ValueError(method)
    length = struct.unpack(">I", body[1:5])[0]
    return body[5 : 5 + length]


def _connect(connection: socket.socket, path: Path) -> None:
    """Connect, even if the path is longer than the 107 bytes of a socket address."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _answer(connection: socket.socket, deadline: float) -> bytes:
    body = bytearray()
    while True:
        connection.settimeout(max(0.05, deadline - time.monotonic()))
        if time.monotonic() > deadline:
            raise TimeoutError
        head = _exactly(connection, 9)
        length = int.from_bytes(head[:3], "big")
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:9], "big") & 0x7FFFFFFF
        payload = _exactly(connection, length)
        if kind == _SETTINGS and not flags & _ACK:
            connection.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            connection.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind in (_GOAWAY, _RST):
            raise ConnectionResetError
        elif kind == _DATA and stream == 1:
            if flags & _PADDED:
                payload = payload[1 : len(payload) - payload[0]]
            body += payload
        if kind in (_DATA, _HEADERS) and stream == 1 and flags & _END_STREAM:
            return bytes(body)


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = connection.recv(min(65536, length - len(data)))
        if not piece:
            raise ConnectionResetError
        data += piece
    return bytes(data)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _literal(name: str, value: str) -> bytes:
    """Return a header, not indexed or compressed; names and values here are shorter than 127 bytes."""
    return b"\x10" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each length-delimited field of a protobuf message; skip other fields."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        wire = tag & 7
        if wire == 2:
            length, position = _varint(message, position)
            yield tag >> 3, message[position : position + length]
            position += length
        elif wire == 0:
            _, position = _varint(message, position)
        else:
            position += 8 if wire == 1 else 4


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
