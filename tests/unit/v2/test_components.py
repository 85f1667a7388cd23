"""Imports and exports of components are read; from anything else nothing is concluded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.v2.components import HEADER, component, item, section
from trellis.v2.components import read_component
from trellis.v2.interfaces import Interface

HANDLER = "wasi:http/incoming-handler@0.2.2"
OUTGOING = "wasi:http/outgoing-handler@0.2.2"


def test_interfaces_of_a_component_are_read() -> None:
    found = read_component(component(imports=[OUTGOING, "wasi:io/poll@0.2.2", "plain-function"], exports=[HANDLER]))
    assert found is not None
    assert found.exports == {Interface("wasi", "http", "incoming-handler", "0.2.2")}
    assert found.imports == {
        Interface("wasi", "http", "outgoing-handler", "0.2.2"),
        Interface("wasi", "io", "poll", "0.2.2"),
    }


def test_a_component_without_exports_has_none() -> None:
    found = read_component(component())
    assert found is not None
    assert found.exports == found.imports == frozenset()


@pytest.mark.parametrize("kind", range(6))
def test_every_kind_of_import_is_skipped(kind: int) -> None:
    found = read_component(HEADER + section(10, [item("a", kind), item(HANDLER, 5)]))
    assert found is not None
    assert found.imports == {Interface("wasi", "http", "incoming-handler", "0.2.2")}


@pytest.mark.parametrize(
    "wasm",
    [
        b"",
        b"this is not wasm",
        b"\x00asm\x01\x00\x00\x00",
        component(exports=[HANDLER])[:-3],
        HEADER + b"\x0b\xff\xff\xff\xff\x0f",
        HEADER + section(11, [b"\x07\x01a\x05\x00\x00"]),
        HEADER + b"\x0b\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
    ],
    ids=["nothing", "text", "a core module", "cut", "a long section", "another form", "an endless number"],
)
def test_nothing_is_concluded_from_other_bytes(wasm: bytes) -> None:
    assert read_component(wasm) is None


@given(st.binary(max_size=100))
def test_no_bytes_raise(tail: bytes) -> None:
    read_component(HEADER + tail)
    read_component(tail)
