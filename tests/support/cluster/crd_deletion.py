"""A CRD that is deleted while its objects are there, on a control plane that several tests use one after the other."""

from __future__ import annotations

import contextlib
import http
import time
from collections.abc import Iterator

from support.nodes.fleet import eventually
from trellis.crds.kinds import BY_DIRECTORY, make_definition
from trellis.kube.resources import DEFINITIONS, Resource
from trellis_dev.localcluster.api import Api

PATIENCE = 60.0


def served(api: Api, kind: Resource) -> bool:
    """Say whether the API server serves a kind."""
    return api.ok(kind.path())


def leave(api: Api, kind: Resource, namespace: str) -> None:
    """Remove the objects of a kind that other tests left outside a namespace: their finalizers would hold the CRD."""
    _, found = api.call("GET", kind.path())
    for metadata in (item["metadata"] for item in found.get("items", ())):
        if metadata["namespace"] != namespace:
            path = kind.path(metadata["namespace"], metadata["name"])
            api.call("PATCH", path, {"metadata": {"finalizers": None}})
            api.call("DELETE", path)


def delete_definition(api: Api, kind: Resource) -> None:
    """Delete a CRD as ``kubectl delete crd`` does."""
    status, answer = api.call("DELETE", DEFINITIONS.path(name=kind.definition))
    assert status == http.HTTPStatus.OK, answer


def terminating(api: Api, kind: Resource) -> bool:
    """Say whether a CRD is there and being deleted."""
    status, found = api.call("GET", DEFINITIONS.path(name=kind.definition))
    return status == http.HTTPStatus.OK and "deletionTimestamp" in found["metadata"]


async def define_again(api: Api, kind: Resource) -> None:
    """Create the CRD once the former one is deleted, and wait until the kind is served."""
    await eventually(lambda: _define(api, kind) == http.HTTPStatus.CREATED, "the CRD", seconds=PATIENCE)
    await eventually(lambda: served(api, kind), "the kind is served", seconds=PATIENCE)


@contextlib.contextmanager
def restored(api: Api, kind: Resource, namespace: str) -> Iterator[None]:
    """Have a CRD to delete; in any case, it exists for the next test."""
    leave(api, kind, namespace)
    try:
        yield
    finally:
        deadline = time.monotonic() + PATIENCE
        while terminating(api, kind) or not served(api, kind):
            assert time.monotonic() < deadline, f"{kind.definition} is not restored"
            if terminating(api, kind):
                leave(api, kind, "")
            _define(api, kind)
            time.sleep(0.2)


def _define(api: Api, kind: Resource) -> int:
    [found] = [
        item
        for ones in BY_DIRECTORY.values()
        for item in ones
        if make_definition(item)["metadata"]["name"] == kind.definition
    ]
    status: int = api.call("POST", DEFINITIONS.path(), make_definition(found))[0]
    return status
