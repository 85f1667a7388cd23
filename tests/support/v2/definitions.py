"""The CRDs of wasmCloud v2 on a real API server, and a stand-in for its operator that writes recorded objects.

In: an API server, a recording. Out: objects with current times. Called by integration tests. The schema of
WorkloadDeployments is the one of wasmCloud 2.7, other kinds accept any field.
"""

from __future__ import annotations

import contextlib
import http
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from support.v2.recordings import Recording
from trellis.kube.resources import DEFINITIONS, WASMCLOUD_V2, WORKLOAD_DEPLOYMENTS, Resource
from trellis_dev.localcluster.api import Api

Manifest = dict[str, Any]
PATIENCE: Final = 60.0
_FILE: Final = Path(__file__).parents[2] / "data/v2/crds.yaml"
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
_OWNERS_FIRST: Final = ("Artifact", "WorkloadDeployment", "WorkloadReplicaSet", "Workload", "Host")
_BY_KIND: Final = {res.kind: res for res in WASMCLOUD_V2}


def _definition(res: Resource) -> Manifest:
    if res is WORKLOAD_DEPLOYMENTS:
        [found] = yaml.safe_load_all(_FILE.read_text())
        return dict(found)
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": res.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    return {
        "apiVersion": DEFINITIONS.api_version,
        "kind": DEFINITIONS.kind,
        "metadata": {"name": res.definition},
        "spec": {
            "group": res.group,
            "scope": "Namespaced",
            "names": {
                "plural": res.plural,
                "singular": res.kind.lower(),
                "kind": res.kind,
                "listKind": f"{res.kind}List",
            },
            "versions": [version | {"subresources": {"status": {}}}],
        },
    }


@contextlib.contextmanager
def wasmcloud_v2(api: Api) -> Iterator[None]:
    """Have the five kinds served for the time of a block; objects that an operator would release are deleted."""
    for res in WASMCLOUD_V2:
        status, answer = api.call("POST", DEFINITIONS.path(), _definition(res))
        assert status in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}, answer
    for res in WASMCLOUD_V2:
        _until(lambda res=res: api.ok(f"{res.path()}?limit=1"), f"{res.definition} is served")
    try:
        yield
    finally:
        for res in WASMCLOUD_V2:
            _release(api, res)
        for res in WASMCLOUD_V2:
            api.call("DELETE", DEFINITIONS.path(name=res.definition))
        for res in WASMCLOUD_V2:
            _until(lambda res=res: not api.ok(f"{res.path()}?limit=1"), f"{res.definition} is gone")


def _release(api: Api, res: Resource) -> None:
    """Remove the finalizers of all objects of a kind: their operator runs no more."""
    for item in api.call("GET", res.path())[1].get("items", ()):
        if (metadata := item["metadata"]).get("finalizers"):
            path = res.path(metadata["namespace"], metadata["name"])
            api.call("PATCH", path, {"metadata": {"finalizers": None}})


def _until(done: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class RecordedOperator:
    """Writes the objects of a recording to namespaces of a test, as the operator does: object, then status."""

    def __init__(self, api: Api, recording: Recording, namespace: str) -> None:
        self._api = api
        self._recording = recording
        self._namespace = namespace
        self._there: dict[tuple[Resource, str], Manifest] = {}
        self._uids: dict[str, str] = {}

    def write(self, at: float) -> None:
        """Write the objects as they were at a time, with the times of now."""
        shift = time.time() - self._recording.start - at
        found = [item for item in self._recording.objects(at) if item["kind"] in _BY_KIND]
        found.sort(key=lambda item: _OWNERS_FIRST.index(item["kind"]))
        wanted = {(_BY_KIND[item["kind"]], item["metadata"]["name"]): _shifted(item, shift) for item in found}
        # Owners come last: the garbage collector deletes what they leave.
        for res, name in reversed([key for key in self._there if key not in wanted]):
            self._delete(res, name)
        for key, item in wanted.items():
            self._put(*key, item)

    def delete_all(self) -> None:
        """Delete all objects."""
        for res, name in reversed([*self._there]):
            self._delete(res, name)

    def _delete(self, res: Resource, name: str) -> None:
        del self._there[res, name]
        status, answer = self._api.call("DELETE", res.path(self._namespace, name))
        assert status == http.HTTPStatus.OK, answer

    def _put(self, res: Resource, name: str, item: Manifest) -> None:
        metadata = {key: value for key, value in item["metadata"].items() if key in {"name", "labels"}}
        owners = [owner | {"uid": self._uids[owner["uid"]]} for owner in item["metadata"].get("ownerReferences", ())]
        body = {key: value for key, value in item.items() if key not in {"metadata", "status"}}
        body |= {"apiVersion": res.api_version, "metadata": metadata | {"ownerReferences": owners}}
        if (res, name) not in self._there:
            status, answer = self._api.call("POST", res.path(self._namespace), body)
        else:
            status, answer = self._api.call("PATCH", res.path(self._namespace, name), body)
        assert status in {http.HTTPStatus.OK, http.HTTPStatus.CREATED}, answer
        self._uids[item["metadata"]["uid"]] = answer["metadata"]["uid"]
        if item.get("status"):
            path = res.path(self._namespace, name, "status")
            status, answer = self._api.call("PATCH", path, {"status": item["status"]})
            assert status == http.HTTPStatus.OK, answer
        self._there[res, name] = item


def _shifted(value: Any, shift: float) -> Any:
    """Return a value with all its times moved by seconds."""
    if isinstance(value, dict):
        return {key: _shifted(item, shift) for key, item in value.items()}
    if isinstance(value, list):
        return [_shifted(item, shift) for item in value]
    if isinstance(value, str) and _TIME.fullmatch(value):
        moved = datetime.fromisoformat(value).timestamp() + shift
        return datetime.fromtimestamp(moved, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return value
