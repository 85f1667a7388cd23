"""C's own JSON, fed with everything: it reads what Python reads, writes what Python reads, and never traps."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from controller_host.guest.modules import Modules
from support.guests import built as guests
from support.guests.guest_api import FakeApi, Json, config_map, key_of
from support.guests.guest_host import GuestHost

pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]

# C's strings end at a zero; what holds one is copied as it stands, which the suite of the examples has.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=30,
)


class Reader:
    """The guest that reads a text and writes it again."""

    def __init__(self, host: GuestHost, api: FakeApi) -> None:
        self._host, self._api = host, api

    def decode(self, text: str) -> str:
        """Return the message about a text in base64."""
        shown = config_map("text", data={"base64": text})
        return str(self._host.reconcile(key_of(shown), shown)["error"])

    def read(self, text: str) -> tuple[str | None, Json]:
        """Return why the text is no JSON, or what became of it."""
        shown = config_map("text", data={"text": text})
        self._api.objects.clear()
        answer = self._host.reconcile(key_of(shown), shown)
        if "error" in answer:
            return answer["error"], {}
        found = self._api.find("ConfigMap", "n", "read")
        assert found is not None
        return None, found["data"]


@pytest.fixture(scope="module")
def reader(modules: Modules, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    guests.needed("c")
    folder, api = tmp_path_factory.mktemp("json"), FakeApi()
    source = guests.ROOT / "tests" / "data" / "guests" / "json.c"
    module = guests.compile_c(source, folder / "json.wasm", folder / "log")
    host = GuestHost(modules.load(module.read_bytes()), api)
    assert host.init() == {}
    yield Reader(host, api)
    host.close()


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(value=VALUES, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))
@example(value=-(2**63), ascii_only=True, indent=None)
@example(value={"": [[], {}, "\U0001f980", "\x7f"]}, ascii_only=True, indent=1)
def test_json_comes_out_unchanged(reader: Reader, value: Any, ascii_only: bool, indent: int | None) -> None:
    problem, data = reader.read(json.dumps(value, ensure_ascii=ascii_only, indent=indent))
    assert problem is None
    assert json.loads(data["text"]) == value
    assert data["same"] == "true"


def _strictly(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def _is_json(text: str) -> bool:
    try:
        _strictly(text)
    except ValueError:
        return False
    return True


@settings(max_examples=1500, suppress_health_check=[HealthCheck.too_slow])
@given(
    text=VALUES.map(json.dumps),
    at=st.floats(0, 1),
    cut=st.integers(0, 3),
    put=st.sampled_from(
        ['"', "\\", "\\u", "\\ud83d", "{", "}", "[", "]", ",", ":", "-", "0", ".", "e", "\t", "\x01", "t"]
    )
    | TEXT,
)
def test_damaged_json_is_refused_or_read_as_by_python(reader: Reader, text: str, at: float, cut: int, put: str) -> None:
    place = int(at * len(text))
    damaged = text[:place] + put + text[place + cut :]
    problem, _ = reader.read(damaged)
    assert (problem is None) == _is_json(damaged), damaged


@pytest.mark.parametrize(
    ("text", "read"),
    [
        pytest.param(r'"\ud83d\ude80"', "🚀", id="a pair"),
        pytest.param(r'"\ud83d"', "\ufffd", id="half of a pair"),
        pytest.param(r'"\ud83d\u0041"', "\ufffdA", id="half of a pair and a letter"),
        pytest.param(r'"\ude80\ud83d"', "\ufffd\ufffd", id="a pair the wrong way round"),
        pytest.param(r'"\"\\\/\b\f\n\r\t"', '"\\/\b\f\n\r\t', id="every escape"),
        pytest.param("123456789012345678901234567890.5e-3", 1.2345678901234568e26, id="a number beyond all"),
    ],
)
def test_corners(reader: Reader, text: str, read: Any) -> None:
    problem, data = reader.read(text)
    assert problem is None
    assert json.loads(data["text"]) == read


def test_200_levels_are_read(reader: Reader) -> None:
    problem, data = reader.read("[" * 200 + "]" * 200)
    assert problem is None
    assert data["same"] == "true"


@pytest.mark.parametrize(
    "text", ["[" * 201 + "]" * 201, "[" * 100_000, '{"a":' * 100_000], ids=["201", "open", "objects"]
)
def test_deeper_than_200_levels_is_refused(reader: Reader, text: str) -> None:
    assert reader.read(text)[0]


def _text_of(data: bytes) -> str:
    total = 0
    for byte in data:
        total = total * 31 % 1000003 + byte
    return f"{len(data)} bytes, {total}"


@given(data=st.binary())
def test_base64_is_decoded(reader: Reader, data: bytes) -> None:
    assert reader.decode(base64.b64encode(data).decode()) == _text_of(data)


@pytest.mark.parametrize("text", ["a", "aGVsbG8", "AA=A", "====", "AB==", "AA==AA==", "A A=", "aGVs\n", "aGV\u00e9"])
def test_invalid_base64_is_refused(reader: Reader, text: str) -> None:
    assert reader.decode(text) == "no base64"
