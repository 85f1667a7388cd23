"""A Kubernetes of dicts that answers a controller's requests in their words, for tests of the SDKs and examples.

In: requests of docs/controller-abi.md. Out: answers; what was asked for is kept in ``requests``. Called by GuestHost.
Invariant: it refuses what the real API server refuses of what the examples do: preconditions, resourceVersions, names
that exist. The service's own tests run the examples on the real one.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Place = tuple[str, str, str, str]


class RefusedError(Exception):
    """A refusal of the server."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.answer = {"error": {"code": code, "reason": reason, "message": message}}


def config_map(name: str, namespace: str = "team-a", data: Json | None = None, **more: Any) -> Json:
    metadata = {"name": name, "namespace": namespace, **more}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {}}


def key_of(obj: Json) -> Json:
    metadata = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
    }


@dataclass
class FakeApi:
    """Objects by apiVersion, kind, namespace and name."""

    objects: dict[Place, Json] = field(default_factory=dict)
    requests: list[Json] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    refusals: dict[str, Json] = field(default_factory=dict)
    """Of an operation: the error it is answered with."""
    _versions: itertools.count[int] = field(default_factory=lambda: itertools.count(100))

    def call(self, request: Json) -> Json:
        self.requests.append(request)
        if request["op"] in self.refusals:
            return {"error": self.refusals[request["op"]]}
        try:
            return {
                "get": self._get, "list": self._list, "create": self._create, "apply": self._apply,
                "update": self._update, "patch": self._patch, "delete": self._delete, "event": self._event,
            }[request["op"]](request)  # fmt: skip
        except RefusedError as refused:
            return refused.answer

    def requested(self, op: str) -> list[Json]:
        return [request for request in self.requests if request["op"] == op]

    def put(self, obj: Json) -> Json:
        """Store an object as another user would; returned as the server has it."""
        place = self._place(key_of(obj))
        old = self.objects.get(place, {"metadata": {}})["metadata"]
        number = next(self._versions)
        known = {"uid": old.get("uid", f"uid-{number}"), "resourceVersion": str(number)}
        self.objects[place] = copy.deepcopy(obj) | {
            "metadata": {**known, **obj["metadata"], "resourceVersion": str(number)}
        }
        return copy.deepcopy(self.objects[place])

    def find(self, kind: str, namespace: str, name: str) -> Json | None:
        for (_, of, where, called), obj in self.objects.items():
            if (of, where, called) == (kind, namespace, name):
                return copy.deepcopy(obj)
        return None

    @staticmethod
    def _place(key: Json) -> Place:
        return key["apiVersion"], key["kind"], key.get("namespace") or "", key["name"]

    def _existing(self, key: Json) -> Json:
        found = self.objects.get(self._place(key))
        if found is None:
            raise RefusedError(404, "NotFound", f'{key["kind"].lower()}s "{key["name"]}" not found')
        return found

    def _get(self, request: Json) -> Json:
        return {"object": copy.deepcopy(self._existing(request))}

    def _list(self, request: Json) -> Json:
        wanted = [
            obj
            for (version, kind, namespace, _), obj in sorted(self.objects.items())
            if (version, kind) == (request["apiVersion"], request["kind"])
            and request.get("namespace") in {None, namespace}
            and _is_selected(obj, request)
        ]
        start, limit = int(request.get("continue") or 0), request.get("limit", 100)
        rest = {"continue": str(start + limit)} if len(wanted) > start + limit else {}
        return {"items": copy.deepcopy(wanted[start : start + limit]), **rest}

    def _create(self, request: Json) -> Json:
        obj = request["object"]
        if self._place(key_of(obj)) in self.objects:
            raise RefusedError(409, "AlreadyExists", f'"{obj["metadata"]["name"]}" already exists')
        return {"object": self.put(obj)}

    def _apply(self, request: Json) -> Json:
        obj = request["object"]
        old = self.objects.get(self._place(key_of(obj)), {})
        return {"object": self.put({**old, **obj, "data": {**old.get("data", {}), **obj.get("data", {})}})}

    def _update(self, request: Json) -> Json:
        obj = request["object"]
        old = self._existing(key_of(obj))
        if obj["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            raise RefusedError(409, "Conflict", "the object has been modified")
        return {"object": self.put(obj)}

    def _patch(self, request: Json) -> Json:
        old = self._existing(request)
        assert request["type"] == "merge", "the fake knows merge patches alone"
        return {"object": self.put(_merge(old, request["patch"]))}

    def _delete(self, request: Json) -> Json:
        metadata = self._existing(request)["metadata"]
        for field_name in ("uid", "resourceVersion"):
            if request.get(field_name) not in {None, metadata[field_name]}:
                raise RefusedError(409, "Conflict", f"the {field_name} in the precondition does not match")
        del self.objects[self._place(request)]
        return {}

    def _event(self, request: Json) -> Json:
        self.events.append(request)
        return {}


def _merge(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def _is_selected(obj: Json, request: Json) -> bool:
    """Say whether selectors take an object: of fields the name alone, of labels `a=b,c=d`."""
    metadata = obj["metadata"]
    fields, labels = {"metadata.name": metadata["name"]}, metadata.get("labels", {})
    requested = [(fields, request.get("fieldSelector")), (labels, request.get("labelSelector"))]
    return all(known.get(name) == value for known, text in requested for name, value in _pairs(text))


def _pairs(text: str | None) -> list[list[str]]:
    return [item.split("=") for item in (text or "").split(",") if item]
