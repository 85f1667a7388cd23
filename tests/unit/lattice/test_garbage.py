"""Data of a lattice is read or refused with one error, however wrong it is, and uses bounded memory."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.lattice.domain.hosts import LABELS_KEPT, TEXT_KEPT, UNITS_KEPT, Host, Hosts, read_host
from trellis.lattice.domain.models import read_models
from trellis.lattice.domain.reading import LatticeDataError, host_data, read_event

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_HOST_KEYS = ("host_id", "friendly_name", "version", "uptime_seconds", "labels", "components", "providers")
_UNIT_KEYS = ("id", "image_ref", "annotations", "max_instances")
_MODEL_KEYS = ("name", "version", "deployed_version", "status", "status_message", "detailed_status")


def objects(keys: tuple[str, ...], **known: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={key: known.get(key, _JSON) | _JSON for key in keys})


_UNITS = st.lists(objects(_UNIT_KEYS), max_size=3)
_MODELS = st.lists(objects(_MODEL_KEYS, name=st.just("shop")), max_size=3)


@given(objects(_HOST_KEYS, host_id=st.just("N1"), components=_UNITS, providers=_UNITS))
def test_a_heartbeat_of_any_shape_is_read_or_refused(data: dict[str, Any]) -> None:
    with contextlib.suppress(LatticeDataError):
        host = read_host(data)
        assert host.id
        assert isinstance(host.characters, int)
        assert host.applications is not None


@given(st.binary() | _JSON.map(lambda value: json.dumps(value).encode()))
def test_any_event_is_read_or_refused(payload: bytes) -> None:
    with contextlib.suppress(LatticeDataError):
        read_host(host_data(read_event(payload)))


@given(st.binary() | (_JSON | _MODELS).map(lambda value: json.dumps(value).encode()))
def test_any_answer_of_wadm_is_read_or_refused(payload: bytes) -> None:
    with contextlib.suppress(LatticeDataError):
        assert all(model.name for model in read_models(payload))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[",
        b'[{"name": "shop"}, {"name"',
        b"[" * 100_000,
        b'{"models": {}}',
        b'[{"name": ["shop"]}]',
        b'[{"name": "\\ud800"}]',
    ],
    ids=["nothing", "partial", "cut", "deep", "no list", "name of a wrong type", "half a character"],
)
def test_an_answer_of_wadm_that_is_none_is_refused(payload: bytes) -> None:
    with pytest.raises(LatticeDataError):
        read_models(payload)


def test_an_answer_of_several_mib_is_read() -> None:
    models = read_models(json.dumps([{"name": f"app-{n:05}", "version": "v" * 1000} for n in range(5000)]).encode())
    assert len(models) == 5000
    assert len(models[0].version) == TEXT_KEPT


def test_of_a_large_heartbeat_only_the_needed_fields_are_kept() -> None:
    units = [{"id": f"{n:05}" + "x" * 1000, "image_ref": "y" * 1000} for n in range(1000)]
    labels = {f"{n:05}" + "k" * 1000: "v" * 1000 for n in range(1000)}
    host = read_host({"host_id": "N1", "version": "1" * 10_000, "labels": labels, "components": units})
    assert (len(host.components), len(host.labels), len(host.version)) == (UNITS_KEPT, LABELS_KEPT, TEXT_KEPT)
    assert host.characters < 300_000
    with pytest.raises(LatticeDataError, match="host_id"):
        read_host({"host_id": "N" * 1000})


def test_hosts_above_the_total_limit_are_omitted_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trellis.lattice.domain.hosts.MAX_CHARACTERS", 1000)
    hosts = Hosts()
    assert hosts.process(Host("N1", labels={"a": "x" * 600}), 1.0)
    assert not hosts.process(Host("N2", labels={"a": "x" * 600}), 1.0)
    assert hosts.refused
    assert not hosts.process(Host("N1", labels={"a": "x" * 2000}), 2.0), "it is heard, and what it said before stays"
    assert [(seen.host.id, seen.at, len(seen.host.labels["a"])) for seen in hosts.sightings()] == [("N1", 2.0, 600)]
    assert hosts.left("N1")
    assert not hosts.refused
    assert hosts.process(Host("N2", labels={"a": "x" * 600}), 3.0)
