"""JSON that is nested too deep is no JSON, wherever it comes from: Python's reader has an error of its own for it."""

from __future__ import annotations

import pytest

from application_manager.tombstones import _parsed
from node_installer.domain.errors import InstallError
from node_installer.domain.refusal import parse_refusal
from node_installer.domain.state import parse_journal, parse_state
from node_installer.fetch.oci import login_for
from node_installer.node import cri
from trellis.installer_api.json_text import NestedTooDeepError, read_json
from trellis.installer_api.result import parse_result
from trellis.installer_api.spec import SpecError, parse_spec
from trellis.limits.breaker_record import decode
from trellis.oci.references import credentials_for, parse_image

DEEP = "[" * 20_000 + "]" * 20_000
DEEP_OBJECT = '{"auths": ' + DEEP + "}"


def test_it_is_a_value_error() -> None:
    with pytest.raises(NestedTooDeepError):
        read_json(DEEP)
    assert read_json(b'{"a": [1e999]}') == {"a": [float("inf")]}


def test_its_reader_refuses_it_like_any_malformed_text() -> None:
    assert parse_result(DEEP) is None
    assert parse_refusal(DEEP.encode(), 0.0) is None
    assert _parsed(DEEP) is None
    assert decode(DEEP) is None
    with pytest.raises(SpecError):
        parse_spec(DEEP)
    for parse in (parse_state, parse_journal):
        with pytest.raises(InstallError, match=r"^/f\b"):
            parse(DEEP.encode(), "/f")


def test_a_docker_configuration_of_it_is_none() -> None:
    with pytest.raises(InstallError, match="Docker configuration"):
        login_for(parse_image("r.example/a"), DEEP_OBJECT.encode())
    with pytest.raises(ValueError, match="Docker configuration"):
        credentials_for(parse_image("r.example/a"), DEEP_OBJECT.encode())


def test_a_runtime_that_answers_with_it_has_answered_nothing() -> None:
    content = b"\x0a\x06config\x12" + varint(len(DEEP)) + DEEP.encode()
    with pytest.raises(NestedTooDeepError):
        cri._config(b"\x12" + varint(len(content)) + content)


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
