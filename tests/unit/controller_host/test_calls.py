"""Requests of guests, as they are read, and the answers they are given."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_host.domain.call_fields import CallRefused, failure
from controller_host.domain.calls import MOST_BYTES, GuestEvent, Verb, answer, read

MANAGER = "trellis.dev/controller/team-a/mirror"
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "team-a", "name": "settings"}
OBJECT = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"namespace": "team-a", "name": "settings"},
    "data": {"a": "1"},
}
EVENT = {
    "op": "event",
    "regarding": CONFIG_MAP | {"uid": "u1"},
    "type": "Warning",
    "reason": "MirrorFailed",
    "message": "there is one already",
}


def requested(**fields: Any) -> Verb | GuestEvent:
    return read(orjson.dumps(fields), MANAGER)


def a_verb(**fields: Any) -> Verb:
    found = requested(**fields)
    assert isinstance(found, Verb)
    return found


def test_get_is_of_one_object() -> None:
    verb = a_verb(op="get", **CONFIG_MAP)
    assert (verb.method, verb.api_version, verb.kind, verb.namespace, verb.name) == (
        "GET",
        "v1",
        "ConfigMap",
        "team-a",
        "settings",
    )
    assert not verb.collection


def test_list_requests_a_hundred_by_default() -> None:
    verb = a_verb(op="list", apiVersion="v1", kind="Pod", namespace="a", labelSelector="app=x", **{"continue": "t"})
    assert verb.query == {"limit": "100", "labelSelector": "app=x", "continue": "t"}
    assert verb.collection
    assert a_verb(op="list", apiVersion="v1", kind="Pod", limit=7).query == {"limit": "7"}


def test_create_goes_to_the_collection_and_may_leave_the_name_to_the_server() -> None:
    verb = a_verb(op="create", object=OBJECT | {"metadata": {"generateName": "x-", "namespace": "team-a"}})
    assert (verb.method, verb.name, verb.namespace, verb.collection) == ("POST", "", "team-a", True)
    assert verb.query == {"fieldManager": MANAGER}


@pytest.mark.parametrize(("force", "expected"), [({}, "false"), ({"force": True}, "true"), ({"force": False}, "false")])
def test_apply_takes_over_fields_of_others_only_with_force(force: dict[str, Any], expected: str) -> None:
    verb = a_verb(op="apply", object=OBJECT, subresource="status", **force)
    assert verb.query == {"fieldManager": MANAGER, "force": expected}
    assert (verb.method, verb.content_type, verb.subresource) == ("PATCH", "application/apply-patch+yaml", "status")
    assert orjson.loads(verb.body or b"") == OBJECT


def test_update_is_of_the_version_that_was_read() -> None:
    newer = OBJECT | {"metadata": {"namespace": "team-a", "name": "settings", "resourceVersion": "7"}}
    assert a_verb(op="update", object=newer).method == "PUT"
    with pytest.raises(CallRefused, match=r"object\.metadata\.resourceVersion"):
        requested(op="update", object=OBJECT)


@pytest.mark.parametrize(
    ("type_", "patch", "content_type"),
    [
        ("merge", {"data": {"a": "2"}}, "application/merge-patch+json"),
        ("json", [{"op": "remove", "path": "/data/a"}], "application/json-patch+json"),
    ],
)
def test_patch_is_of_two_kinds(type_: str, patch: object, content_type: str) -> None:
    verb = a_verb(op="patch", **CONFIG_MAP, type=type_, patch=patch)
    assert (verb.method, verb.content_type, orjson.loads(verb.body or b"")) == ("PATCH", content_type, patch)


def test_delete_carries_what_it_expects() -> None:
    verb = a_verb(op="delete", **CONFIG_MAP, uid="u1", resourceVersion="7", propagationPolicy="Orphan")
    assert orjson.loads(verb.body or b"") == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Orphan",
        "preconditions": {"uid": "u1", "resourceVersion": "7"},
    }


def test_an_event_is_about_an_object_and_of_bounded_length() -> None:
    found = read(orjson.dumps(EVENT | {"message": "x" * 5000}), MANAGER)
    assert isinstance(found, GuestEvent)
    assert found.regarding == CONFIG_MAP | {"uid": "u1"}
    assert (found.type, found.reason, len(found.message)) == ("Warning", "MirrorFailed", 1024)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "op"),
        ({"op": "watch"}, "op"),
        ({"op": ["get"]}, "op"),
        ({"op": "get", **CONFIG_MAP, "name": None}, "name"),
        ({"op": "get", **CONFIG_MAP, "name": ".."}, "name"),
        ({"op": "get", **CONFIG_MAP, "name": "a/b"}, "name"),
        ({"op": "get", **CONFIG_MAP, "name": "%2e%2e"}, "name"),
        ({"op": "get", **CONFIG_MAP, "name": "a?watch=1"}, "name"),
        ({"op": "get", **CONFIG_MAP, "name": "a" * 254}, "name"),
        ({"op": "get", **CONFIG_MAP, "namespace": "../kube-system"}, "namespace"),
        ({"op": "get", **CONFIG_MAP, "namespace": 7}, "namespace"),
        ({"op": "get", **CONFIG_MAP, "apiVersion": "../v1"}, "apiVersion"),
        ({"op": "get", **CONFIG_MAP, "apiVersion": "a/b/v1"}, "apiVersion"),
        ({"op": "get", **CONFIG_MAP, "kind": "Config/Map"}, "kind"),
        ({"op": "list", "apiVersion": "v1", "kind": "Pod", "limit": 0}, "limit"),
        ({"op": "list", "apiVersion": "v1", "kind": "Pod", "limit": 501}, "limit"),
        ({"op": "list", "apiVersion": "v1", "kind": "Pod", "limit": True}, "limit"),
        ({"op": "list", "apiVersion": "v1", "kind": "Pod", "labelSelector": {"a": "b"}}, "labelSelector"),
        ({"op": "create"}, "object"),
        ({"op": "create", "object": []}, "object"),
        ({"op": "create", "object": {"apiVersion": "v1", "kind": "Pod"}}, "object.metadata"),
        ({"op": "create", "object": {"kind": "Pod", "metadata": {"name": "a"}}}, "object.apiVersion"),
        ({"op": "apply", "object": OBJECT, "force": "yes"}, "force"),
        ({"op": "apply", "object": OBJECT, "subresource": "../x"}, "subresource"),
        ({"op": "patch", **CONFIG_MAP, "type": "strategic", "patch": {}}, "type"),
        ({"op": "patch", **CONFIG_MAP, "type": "merge", "patch": []}, "patch"),
        ({"op": "patch", **CONFIG_MAP, "type": "json", "patch": {}}, "patch"),
        ({"op": "delete", **CONFIG_MAP, "propagationPolicy": "Now"}, "propagationPolicy"),
        ({"op": "delete", **CONFIG_MAP, "uid": 7}, "uid"),
        (EVENT | {"regarding": "x"}, "regarding"),
        (EVENT | {"regarding": CONFIG_MAP | {"name": ""}}, "regarding.name"),
        (EVENT | {"type": "Error"}, "type"),
        (EVENT | {"reason": "two words"}, "reason"),
    ],
)
def test_a_request_that_cannot_be_understood_is_refused_by_the_name_of_its_field(
    fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(CallRefused) as refused:
        read(orjson.dumps(fields), MANAGER)
    assert refused.value.reason == "InvalidRequest"
    assert refused.value.message.startswith(f"{named}: ")


@pytest.mark.parametrize("request_", [b"", b"{", b"[]", b"null", b'"get"', b"\xff", b'{"op": "\xff"}'])
def test_a_request_that_is_no_json_object_is_refused(request_: bytes) -> None:
    with pytest.raises(CallRefused, match="InvalidRequest: the request"):
        read(request_, MANAGER)


def test_a_request_beyond_all_measure_is_refused_before_it_is_read() -> None:
    with pytest.raises(CallRefused) as refused:
        read(b" " * (MOST_BYTES + 1), MANAGER)
    assert refused.value.reason == "TooLarge"


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_names = st.sampled_from(["op", "apiVersion", "kind", "namespace", "name", "object", "metadata", "patch", "type"])
_values = st.sampled_from(
    ["get", "list", "create", "apply", "update", "patch", "delete", "event", "v1", "Pod", "merge"]
)


@given(st.dictionaries(_names, _json | _values, max_size=8))
def test_any_request_of_a_guest_is_parsed_or_refused(fields: dict[str, Any]) -> None:
    with contextlib.suppress(CallRefused):
        assert isinstance(read(orjson.dumps(fields), MANAGER), Verb | GuestEvent)


def test_an_object_is_answered_as_the_server_gave_it() -> None:
    body = orjson.dumps(OBJECT) + b"\n"
    assert orjson.loads(answer(a_verb(op="get", **CONFIG_MAP), body)) == {"object": OBJECT}


def test_items_of_a_list_have_kind_and_apiversion() -> None:
    body = orjson.dumps({"kind": "PodList", "metadata": {"continue": "t"}, "items": [{"metadata": {"name": "a"}}]})
    verb = a_verb(op="list", apiVersion="v1", kind="Pod")
    assert orjson.loads(answer(verb, body)) == {
        "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}],
        "continue": "t",
    }
    assert orjson.loads(answer(verb, b'{"metadata": {}, "items": null}')) == {"items": []}


def test_a_deletion_is_answered_by_nothing() -> None:
    assert answer(a_verb(op="delete", **CONFIG_MAP), b'{"kind": "Status"}') == b"{}"


def test_an_answer_above_the_limit_is_refused_with_what_to_do() -> None:
    body = orjson.dumps(OBJECT | {"data": {"a": "x" * MOST_BYTES}})
    with pytest.raises(CallRefused) as refused:
        answer(a_verb(op="get", **CONFIG_MAP), body)
    assert refused.value.reason == "TooLarge"


def test_a_failure_has_the_servers_words() -> None:
    assert orjson.loads(failure(409, "Conflict", "the object has been modified")) == {
        "error": {"code": 409, "reason": "Conflict", "message": "the object has been modified"}
    }


def test_no_body_of_a_request_is_shown_where_it_is_printed() -> None:
    verb = a_verb(op="apply", object=OBJECT | {"kind": "Secret", "data": {"password": "cGxhbnRlZA=="}})
    assert "cGxhbnRlZA" not in repr(verb)
