"""The output of a command for each error."""

from __future__ import annotations

import errno
import re
import socket

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from support.suite.naming import lacking
from trellis.bus.errors import BusUnavailable
from trellis.config.settings import SettingsError
from trellis.kube.errors import Call, Forbidden, KubeError, NotFound, Unauthorized, Unavailable
from trellis.kube.network_errors import NOT_TRUSTED, network_reason
from trellis_cli.common.errors import CommandError, describe_error, exit_on_error

LIST = Call("LIST", "Node", "nodes")
GET = Call("GET", "Lease", "leases", "trellis-system", "trellis-provisioner")


def kube_error(kind: type[KubeError]) -> KubeError:
    return kind(LIST, status=0, reason=kind.__name__, message="said the server")


@pytest.mark.parametrize(
    ("error", "what", "hint"),
    [
        (kube_error(Unavailable), "said the server", "--kubeconfig"),
        (Unavailable(LIST, status=0, reason="", message=f"{NOT_TRUSTED}: x"), NOT_TRUSTED, "certificate-authority"),
        (kube_error(Unauthorized), "Unauthorized", "--context"),
        (kube_error(Forbidden), "said the server", "permission"),
        (kube_error(NotFound), '"nodes"', "kubectl get nodes"),
        (
            NotFound(Call("LIST", "Host", "hosts", group="runtime.wasmcloud.dev"), status=404, reason="", message="x"),
            '"hosts.runtime.wasmcloud.dev"',
            "kubectl get hosts.runtime.wasmcloud.dev",
        ),
        (
            NotFound(GET, status=404, reason="NotFound", message="x"),
            '"trellis-provisioner"',
            "TRELLIS_NAMESPACE",
        ),
        (BusUnavailable("no NATS at nats://127.0.0.1:4222"), "nats://127.0.0.1:4222", "--nats-url"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_outage_is_one_line_that_names_the_remedy(
    error: Exception, what: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, exit_on_error():
        raise error
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("Error: ")
    assert what in err
    assert re.search(hint, err)


def test_a_wrong_setting_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, exit_on_error():
        raise SettingsError("TRELLIS_NATS_URL: has 'x', needs an address")
    assert ended.value.code == 2
    assert "TRELLIS_NATS_URL" in capsys.readouterr().err


def test_ctrl_c_ends_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, exit_on_error():
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert capsys.readouterr().err == ""


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), exit_on_error():
        raise ZeroDivisionError


def test_expected_errors_are_reported_too() -> None:
    with pytest.raises(SystemExit) as ended, exit_on_error(LookupError):
        raise LookupError("nothing there")
    assert ended.value.code == 1


def test_a_message_of_several_lines_becomes_one_without_passwords() -> None:
    assert describe_error(CommandError("a\n  b nats://me:secret@host:1")) == "a b nats://me:***@host:1"


REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")
KEY = ConnectionKey("127.0.0.1", 1, True, True, None, None, None)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (REFUSED, "refused"),
        (aiohttp.ClientConnectorError(KEY, REFUSED), "refused"),
        (
            OSError(f"Multiple exceptions: [Errno {errno.ENETUNREACH}] a, [Errno {errno.ECONNREFUSED}] b"),
            "unreachable",
        ),
        (aiohttp.ClientConnectorError(KEY, socket.gaierror(-2, "Name or service not known")), "host name"),
        (aiohttp.ServerDisconnectedError(), "closed"),
        (TimeoutError(), "in time"),
    ],
    ids=str,
)
def test_a_failed_connection_is_named_without_text_of_libraries(error: Exception, name: str) -> None:
    reason = network_reason(error)
    assert lacking(reason, name) == []
    assert "[" not in reason, "neither an errno nor an address of a library"
