"""Lattices of a local cluster, as far as no server has to run."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.suite.naming import lacking
from trellis_dev.localcluster import lattice_servers
from trellis_dev.localcluster.commands import LEAFNODES, command
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.nats_requests import request
from trellis_dev.localcluster.paths import Layout

INFO = b'INFO {"server_id":"x"}\r\n'


@contextmanager
def server(answer: Callable[[socket.socket, bytes], None]) -> Iterator[int]:
    """Something on a port that greets as NATS does and reads a request; ``answer`` gets its connection and inbox."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(INFO)
                received = b""
                while b"PUB " not in received or not received.endswith(b"\r\n"):
                    received += connection.recv(4096)
                answer(connection, received.partition(b"SUB ")[2].split(b" ")[0])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join(timeout=20)
            assert not thread.is_alive()


def test_the_first_reply_is_returned_and_pings_are_answered() -> None:
    def answer(connection: socket.socket, inbox: bytes) -> None:
        connection.sendall(b"PING\r\n")
        assert connection.recv(6) == b"PONG\r\n"
        connection.sendall(b"MSG " + inbox + b" 1 5\r\nhel")
        connection.sendall(b"lo\r\nMSG " + inbox + b" 1 1\r\nx\r\n")

    with server(answer) as port:
        assert request(port, "some.subject", seconds=20) == b"hello"


def test_headers_are_no_part_of_the_reply() -> None:
    def answer(connection: socket.socket, inbox: bytes) -> None:
        connection.sendall(b"HMSG " + inbox + b" 1 18 20\r\nNATS/1.0\r\na: b\r\n\r\n{}\r\n")

    with server(answer) as port:
        assert request(port, "some.subject", seconds=20) == b"{}"


@pytest.mark.parametrize(
    "reply",
    [
        b"HMSG inbox 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"-ERR 'Authorization Violation'\r\n",
        b"MSG inbox 1 many\r\n",
        b"MSG\r\n",
        b"",
        b"\r\n",
    ],
    ids=["nobody listens", "refused", "no number", "cut off", "closed", "empty line"],
)
def test_no_answer_and_nonsense_are_no_reply(reply: bytes) -> None:
    with server(lambda connection, _: connection.sendall(reply)) as port:
        assert request(port, "some.subject", seconds=20) is None


def test_silence_ends_after_the_time_given() -> None:
    over = threading.Event()

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(INFO)
        over.wait(20)

    with server(answer) as port:
        assert request(port, "some.subject", seconds=0.1) is None
        over.set()


def test_an_address_without_a_server_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert request(port, "some.subject") is None


def test_without_rust_wadm_and_the_host_name_the_missing_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert lacking(lattice_servers.missing(), "wadm", "cargo, cc") == []
    with pytest.raises(ToolError, match=r"\bcargo, cc\b"):
        lattice_servers.lattice_servers(None)  # type: ignore[arg-type]


def test_existing_builds_need_no_build_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lattice_servers._path().mkdir(parents=True)
    assert lattice_servers.missing() is None
    programs = lattice_servers.lattice_servers(None)  # type: ignore[arg-type]
    assert programs == {name: lattice_servers._path() / name for name in ("wadm", "wasmcloud-host")}


def test_a_nats_server_has_a_configuration_only_where_it_is_joined(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    alone = command("nats-server", layout, {"nats": 1}, audit=False)
    joined = command("nats-server", layout, {"nats": 1, LEAFNODES: 2}, audit=False)
    assert "--config" not in alone
    assert joined == [*alone, "--config", str(layout.nats_config)]
