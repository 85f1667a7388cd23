"""A port that was given to one process is given to no other, and its server can listen there."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from trellis_dev.localcluster import ports
from trellis_dev.localcluster.ports import LOOPBACK, free_ports, is_free

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a bound socket keeps servers away")


def listening(port: int) -> socket.socket:
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((LOOPBACK, port))
    server.listen()
    return server


def test_a_server_can_listen_on_a_port_that_was_given() -> None:
    (port,) = free_ports(1)
    assert is_free(port)
    with listening(port):
        assert ports.accepts(port)
        assert not is_free(port)
    assert is_free(port)


def test_no_other_process_is_given_a_port_before_its_server_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    program = f"""
from trellis_dev.localcluster import errors, ports
ports._FIRST = ports._LAST = {port}
try:
    print(ports.free_ports(1))
except errors.StartError:
    print("refused")
"""
    argv = [sys.executable, "-c", program]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "refused\n"
    monkeypatch.setattr(ports, "_KEPT", 0)
    free_ports(1)  # it is kept no longer
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == f"[{port}]\n"
