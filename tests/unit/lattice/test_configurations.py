"""Named configurations of a lattice: what they say of an address, and nothing else."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.suite.naming import lacking
from support.wadm.manifests import ANY_HOST, capability, link, manifest
from trellis.lattice.domain.manifests import read_application
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.wadm.configurations import read_configuration, read_host_configuration


def answer(value: object, headers: bytes = b"") -> bytes:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    message = {"subject": "$KV.CONFIGDATA_x.web", "seq": 1, "data": base64.b64encode(body).decode()}
    return json.dumps({"message": message | ({"hdrs": base64.b64encode(headers).decode()} if headers else {})}).encode()


def test_only_configurations_with_an_address_are_kept() -> None:
    received_at = {"Address": "0.0.0.0:80", "password": "secret"}
    assert read_configuration(answer(received_at)) == {"address": "0.0.0.0:80"}, "keys are of any case"


@pytest.mark.parametrize(
    "payload",
    [
        answer({}, b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"),
        answer({"address": ":1"}, b"NATS/1.0\r\nKV-Operation: PURGE\r\n\r\n"),
        json.dumps({"error": {"code": 404, "err_code": 10037, "description": "no message found"}}).encode(),
        answer(b"\xff"),
        answer([1]),
        answer({"address": 1}),
        json.dumps({"message": {"data": "%"}}).encode(),
    ],
    ids=["deleted", "purged", "not there", "no JSON", "no map", "no text", "no base64"],
)
def test_a_missing_configuration_is_empty(payload: bytes) -> None:
    assert read_configuration(payload) == {}


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'{"error": {"code": 503, "description": "no leader"}}'])
def test_an_invalid_answer_is_reported(payload: bytes) -> None:
    with pytest.raises(LatticeDataError):
        read_configuration(payload)


@pytest.mark.parametrize("read", [read_configuration, read_host_configuration])
@given(payload=st.binary())
def test_any_bytes_are_an_answer_or_refused(payload: bytes, read: Callable[[bytes], object]) -> None:
    try:
        read(payload)
    except LatticeDataError:
        return


def host_answer(response: object, *, success: object = True, message: str = "") -> bytes:
    return json.dumps({"success": success, "message": message, "response": response}).encode()


def test_of_a_hosts_answer_only_addresses_are_kept() -> None:
    received_at = {"Address": "0.0.0.0:80", "password": "secret"}
    assert read_host_configuration(host_answer(received_at)) == {"address": "0.0.0.0:80"}
    assert read_host_configuration(host_answer(None, message="Configuration not found")) == {}


@pytest.mark.parametrize("payload", [b"[]", b"{}", host_answer({}, success="yes"), host_answer({}, success=False)])
def test_an_invalid_answer_of_a_host_is_reported(payload: bytes) -> None:
    with pytest.raises(LatticeDataError):
        read_host_configuration(payload)


PLACES: dict[str, dict[str, Any]] = {
    "of the link": capability("web", link(None, source={"config": [{"name": "web"}]}), ANY_HOST),
    "of the link, as of old": capability("web", link(None, source_config=[{"name": "web"}]), ANY_HOST),
    "of the capability": capability("web", link(None), ANY_HOST, config=[{"name": "web"}]),
}


@pytest.mark.parametrize("component", PLACES.values(), ids=PLACES)
def test_a_named_configuration_gives_the_address(component: dict[str, Any]) -> None:
    application = read_application(manifest("shop", component), {"web": {"address": "0.0.0.0:9090"}})
    assert [listener.port for listener in application.listeners] == [9090]
    assert application.configurations == ("web",)
    unknown = read_application(manifest("shop", component))
    assert [item.reason for item in unknown.unreachable] == ["NoAddress"]
    assert lacking(unknown.unreachable[0].message, "configuration web") == []


def test_a_provider_with_an_inline_address_names_no_configuration() -> None:
    assert read_application(manifest()).configurations == ()
    elsewhere = capability("web", link(None, package="keyvalue", source={"config": [{"name": "redis"}]}), link())
    assert read_application(manifest("shop", elsewhere)).configurations == ()
