"""Recorded answers of a real wadm are read, and each of its refusals becomes the right condition."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.lattices.lattice_recordings import replies
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import (
    MESSAGE_KEPT,
    Put,
    Refusal,
    Version,
    WadmRefusedError,
    read_delete,
    read_deploy,
    read_get,
    read_published_status,
    read_put,
    read_status,
    read_versions,
)

READERS: tuple[Callable[[bytes], Any], ...] = (
    read_put,
    read_deploy,
    read_delete,
    read_get,
    read_versions,
    read_status,
    read_published_status,
)


def recorded(operation: str) -> list[bytes]:
    return [json.dumps(reply).encode() for reply in replies(f"wadm.api.default.model.{operation}")]


def test_the_recorded_puts_are_read_good_and_bad() -> None:
    first, again, second, *garbage = recorded("put")
    assert read_put(first) == Put("v1", created=True, versions=1)
    assert read_put(second) == Put("v2", created=False, versions=2)
    with pytest.raises(WadmRefusedError, match=r"^Manifest version v1 already exists$") as refused:
        read_put(again)
    assert refused.value.refusal is Refusal.VERSION_EXISTS
    assert len(garbage) == 2
    for item, says in zip(garbage, ("unknown field `not`", "missing field `annotations`"), strict=True):
        with pytest.raises(WadmRefusedError, match=says) as refused:
            read_put(item)
        assert refused.value.refusal is Refusal.REJECTED
        assert "backtrace" not in str(refused.value)


def test_the_recorded_rest_is_read() -> None:
    assert [read_deploy(item) for item in recorded("deploy.shop")] == ["v1", "v2"]
    assert [read_deploy(item) for item in recorded("undeploy.shop")] == [""]
    assert [read_deploy(item) for item in recorded("deploy.nope")] == [None]
    assert [read_delete(item) for item in (*recorded("del.shop"), *recorded("del.nope"))] == [True, False]
    assert [read_get(item) for item in recorded("get.nope")] == [None]
    (manifest,) = [read_get(item) for item in recorded("get.shop")]
    assert manifest is not None
    assert manifest["metadata"]["name"] == "shop"
    assert [read_versions(item) for item in recorded("versions.shop")] == [(Version("v1", False), Version("v2", True))]


def test_the_recorded_statuses_are_kept_word_for_word() -> None:
    reconciling, failed = (read_status(item) for item in recorded("status.shop"))
    assert reconciling.status == "reconciling"
    assert [(scaler.kind, scaler.status) for scaler in reconciling.scalers] == [
        ("SpreadScaler", "reconciling"),
        ("LinkScaler", "reconciling"),
        ("DaemonScaler", "deployed"),
    ]
    first, second = (reply["status"] for reply in replies("wadm.api.default.model.status.shop"))
    assert reconciling.scalers[0].message == first["scalers"][0]["status"]["message"]
    assert reconciling.scalers[1].name == "shop-httpserver -(wasi:http)-> shop-http_component"
    assert failed.message == second["status"]["message"]
    (unknown,) = (read_status(item) for item in recorded("status.nope"))
    assert (unknown.status, unknown.scalers) == ("undeployed", ())


def test_a_published_status_is_parsed_like_a_requested_one() -> None:
    requested = replies("wadm.api.default.model.status.shop")[0]
    assert read_published_status(json.dumps(requested["status"]).encode()) == read_status(
        json.dumps(requested).encode()
    )


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ("Manifest version a b already exists", Refusal.VERSION_EXISTS),
        ("Internal storage error", Refusal.FAILED),
        ("Error notifying processors of newly deployed manifest. This is likely a transient error", Refusal.FAILED),
        ("Application with the name 'x' does not have a version 'v9' to deploy", Refusal.VERSION_MISSING),
        ("Application with the name x does not have the specified version to deploy", Refusal.VERSION_MISSING),
        ("Component identifier 'a' is already deployed in a different application 'b'.", Refusal.BLOCKED),
        ("Application contains shared components that are not deployed in other applications: []", Refusal.BLOCKED),
        ("Duplicate component name in manifest: ui", Refusal.REJECTED),
        ("", Refusal.REJECTED),
        ("x" * 5000, Refusal.REJECTED),
    ],
)
def test_errors_of_wadm_differ_only_by_their_text(message: str, refusal: Refusal) -> None:
    with pytest.raises(WadmRefusedError) as refused:
        read_deploy(json.dumps({"result": "error", "message": message}).encode())
    assert refused.value.refusal is refusal
    assert 0 < len(str(refused.value)) <= MESSAGE_KEPT


def test_a_failed_deletion_is_none_for_any_result_field() -> None:
    message = "Internal storage error when deleting v1 of application shop"
    with pytest.raises(WadmRefusedError) as refused:
        read_delete(json.dumps({"result": "deleted", "message": message}).encode())
    assert refused.value.refusal is Refusal.FAILED


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_RESULTS = st.sampled_from(["created", "newversion", "acknowledged", "deleted", "success", "ok", "notfound", "error"])
_KEYS = ("message", "name", "version", "versions", "manifest", "status", "current_version", "total_versions")
_ANSWERS = st.fixed_dictionaries({"result": _RESULTS | _JSON}, optional=dict.fromkeys(_KEYS, _JSON))


@given(st.binary() | (_JSON | _ANSWERS).map(lambda value: json.dumps(value).encode()), st.sampled_from(READERS))
def test_an_answer_of_any_shape_is_read_or_refused(payload: bytes, read: Callable[[bytes], Any]) -> None:
    with contextlib.suppress(LatticeDataError, WadmRefusedError):
        read(payload)


def test_a_manifest_that_is_nested_deeper_than_it_can_be_written_is_refused() -> None:
    nested = b'{"a":' * 300 + b"1" + b"}" * 300
    with pytest.raises(LatticeDataError, match="`manifest`"):
        read_get(b'{"result": "success", "manifest": ' + nested + b"}")
