"""Parser of a guest's requests to Kubernetes (``trellis.call``), and the format of their answers.

Pure: bytes of a guest in, a ``Verb`` out, or ``CallRefused`` that names the field; bytes of the API server in, bytes
for the guest out. Called by ``calling``. Invariants: a path contains text of a guest only if it is a valid name; the
answer to any request is JSON in the format of docs/controller-abi.md.
Source: docs/controller-abi.md, "Requests of ``call``".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from controller_host.domain.call_fields import (
    CallRefused,
    Fields,
    invalid,
    name_of,
    namespace_of,
    object_of,
    subresource_of,
    text_of,
    type_of,
)

MOST_BYTES: Final = 4 * 2**20
"""Maximum size of a request, and of an answer."""
MOST_ITEMS: Final = 500
_ITEMS: Final = 100
_JSON: Final = "application/json"
_PATCHES: Final = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}
_PROPAGATION: Final = ("Background", "Foreground", "Orphan")
_EVENT_TYPES: Final = ("Normal", "Warning")
_LONGEST_MESSAGE: Final = 1024
_REASON = re.compile(r"[A-Za-z][A-Za-z0-9]{0,127}")


@dataclass(frozen=True, slots=True)
class Verb:
    """One request to the API server without its path, which requires discovery of the kind.

    ``collection``: the path is that of the list, not of an object. ``namespace``: "" for cluster-scoped kinds, and for
    all namespaces.
    """

    op: str
    method: str
    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    content_type: str = _JSON
    body: bytes | None = field(default=None, repr=False)
    collection: bool = False


@dataclass(frozen=True, slots=True)
class GuestEvent:
    """An Event about ``regarding`` that a guest requests."""

    regarding: Mapping[str, str]
    type: str
    reason: str
    message: str = field(repr=False)


def read(request: bytes, manager: str) -> Verb | GuestEvent:
    """Return the parsed request; ``manager`` is the field manager of the controller.

    Raises:
        CallRefused: the request is invalid; the message names the field and its valid values.
    """
    if len(request) > MOST_BYTES:
        raise CallRefused("TooLarge", f"the request has {len(request)} bytes, the maximum is {MOST_BYTES}")
    try:
        fields = orjson.loads(request)
    except orjson.JSONDecodeError as error:
        raise invalid("the request", f"is not JSON in UTF-8 ({str(error)[:100]})") from None
    if not isinstance(fields, dict):
        raise invalid("the request", 'needs to be an object: {"op": "get", …}')
    reader = _READERS.get(fields["op"]) if isinstance(fields.get("op"), str) else None
    if reader is None:
        raise invalid("op", f"needs one of {', '.join(_READERS)}")
    return reader(fields, manager)


def answer(verb: Verb, body: bytes) -> bytes:
    """Return the answer for a successful response of the API server.

    Raises:
        CallRefused: the answer is longer than 4 MiB.
    """
    if verb.op == "delete":
        return b"{}"
    whole = _listed(verb, body) if verb.op == "list" else b'{"object":' + body.strip() + b"}"
    if len(whole) > MOST_BYTES:
        raise too_large(f"{len(whole)} bytes")
    return whole


def too_large(what: str) -> CallRefused:
    """Return the error for an answer of ``what`` size, above the maximum."""
    return CallRefused("TooLarge", f"the answer has {what}, the maximum is {MOST_BYTES}: use limit and selectors")


def _listed(verb: Verb, body: bytes) -> bytes:
    found = orjson.loads(body)
    # The items of a list have no apiVersion and kind: add them for guests that handle single items.
    items = [{"apiVersion": verb.api_version, "kind": verb.kind} | item for item in found.get("items") or []]
    token = found.get("metadata", {}).get("continue")
    return orjson.dumps({"items": items} | ({"continue": token} if token else {}))


def _get(fields: Fields, _manager: str) -> Verb:
    return _on_object("get", "GET", fields)


def _list(fields: Fields, _manager: str) -> Verb:
    limit = fields.get("limit", _ITEMS)
    if type(limit) is not int or not 1 <= limit <= MOST_ITEMS:
        raise invalid("limit", f"needs a whole number from 1 to {MOST_ITEMS}")
    query = {"limit": str(limit)}
    for name in ("labelSelector", "fieldSelector", "continue"):
        if value := text_of(fields, name, optional=True):
            query[name] = value
    api_version, kind = type_of(fields)
    namespace = namespace_of(fields, "namespace")
    return Verb("list", "GET", api_version, kind, namespace, query=query, collection=True)


def _create(fields: Fields, manager: str) -> Verb:
    found = object_of(fields)
    metadata = found["metadata"]
    name = (
        "" if metadata.get("generateName") and not metadata.get("name") else name_of(metadata, "object.metadata.name")
    )
    namespace = namespace_of(metadata, "object.metadata.namespace")
    query = {"fieldManager": manager}
    api_version, kind = type_of(found, "object.")
    body = orjson.dumps(found)
    return Verb("create", "POST", api_version, kind, namespace, name, query=query, body=body, collection=True)


def _apply(fields: Fields, manager: str) -> Verb:
    force = fields.get("force", False)
    if not isinstance(force, bool):
        raise invalid("force", "needs true or false")
    query = {"fieldManager": manager, "force": "true" if force else "false"}
    return _whole("apply", "PATCH", fields, query, "application/apply-patch+yaml")


def _update(fields: Fields, manager: str) -> Verb:
    found = object_of(fields)
    if not found["metadata"].get("resourceVersion"):
        raise invalid("object.metadata.resourceVersion", "needs the version that was read")
    return _whole("update", "PUT", fields, {"fieldManager": manager}, _JSON)


def _patch(fields: Fields, manager: str) -> Verb:
    kind = fields.get("type")
    if kind not in ("merge", "json"):
        raise invalid("type", "needs merge or json")
    patch = fields.get("patch")
    if not isinstance(patch, dict if kind == "merge" else list):
        raise invalid("patch", "needs an object" if kind == "merge" else "needs a list of operations")
    found = _on_object("patch", "PATCH", fields)
    return Verb(
        "patch",
        "PATCH",
        found.api_version,
        found.kind,
        found.namespace,
        found.name,
        subresource_of(fields),
        {"fieldManager": manager},
        _PATCHES[kind],
        orjson.dumps(patch),
    )


def _delete(fields: Fields, _manager: str) -> Verb:
    propagation = fields.get("propagationPolicy", "Background")
    if propagation not in _PROPAGATION:
        raise invalid("propagationPolicy", f"needs one of {', '.join(_PROPAGATION)}")
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
    conditions = {name: text_of(fields, name, optional=True) for name in ("uid", "resourceVersion")}
    if given := {name: value for name, value in conditions.items() if value}:
        options["preconditions"] = given
    found = _on_object("delete", "DELETE", fields)
    place = (found.api_version, found.kind, found.namespace, found.name)
    return Verb("delete", "DELETE", *place, body=orjson.dumps(options))


def _event(fields: Fields, _manager: str) -> GuestEvent:
    regarding = fields.get("regarding")
    if not isinstance(regarding, dict):
        raise invalid("regarding", "needs a reference: apiVersion, kind, namespace, name, uid")
    api_version, kind = type_of(regarding, "regarding.")
    reference = {"apiVersion": api_version, "kind": kind, "name": name_of(regarding, "regarding.name")}
    if namespace := namespace_of(regarding, "regarding.namespace"):
        reference["namespace"] = namespace
    if uid := text_of(regarding, "uid", optional=True):
        reference["uid"] = uid
    if fields.get("type", "Normal") not in _EVENT_TYPES:
        raise invalid("type", "needs Normal or Warning")
    reason = text_of(fields, "reason")
    if not _REASON.fullmatch(reason):
        raise invalid("reason", "needs at most 128 letters and digits: JobDeleted")
    message = text_of(fields, "message", optional=True)[:_LONGEST_MESSAGE]
    return GuestEvent(reference, fields.get("type", "Normal"), reason, message)


_READERS: Final[Mapping[str, Callable[[Fields, str], Verb | GuestEvent]]] = {
    "get": _get,
    "list": _list,
    "create": _create,
    "apply": _apply,
    "update": _update,
    "patch": _patch,
    "delete": _delete,
    "event": _event,
}


def _on_object(op: str, method: str, fields: Fields) -> Verb:
    api_version, kind = type_of(fields)
    return Verb(op, method, api_version, kind, namespace_of(fields, "namespace"), name_of(fields, "name"))


def _whole(op: str, method: str, fields: Fields, query: Mapping[str, str], content_type: str) -> Verb:
    found = object_of(fields)
    api_version, kind = type_of(found, "object.")
    namespace = namespace_of(found["metadata"], "object.metadata.namespace")
    name = name_of(found["metadata"], "object.metadata.name")
    body = orjson.dumps(found)
    return Verb(op, method, api_version, kind, namespace, name, subresource_of(fields), query, content_type, body)
