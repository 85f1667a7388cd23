"""A Shim of one test, and kubelets that show the handlers which its Jobs install."""

from __future__ import annotations

import http
from typing import Any

import pytest

from support.cluster.definitions import OURS, ensure_served
from support.nodes.fleet import SHIMS, Fleet, Manifest
from trellis import names

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


class Shim:
    """A Shim of one test, for the nodes that bear the test's label."""

    def __init__(self, fleet: Fleet, kind: str = "spin") -> None:
        self.fleet = fleet
        self.name = f"{kind}-{fleet.id}"
        self.handler = f"{kind}-{fleet.id}"
        self.labels: dict[str, str] = {}

    def add_nodes(self, count: int, *others: str) -> list[str]:
        """Create nodes that the Shim selects; ``others`` are prefixes of nodes that go wrong (``flaky``, ``bad``)."""
        made = self.fleet.add(*others, *["node"] * count, opted_in=False)
        for node in made:
            self.fleet.patch(node, {"metadata": {"labels": {"test": self.fleet.id}}})
        return made

    def apply(
        self, *, sha256: str | None = "ab" * 32, max_update: int | str = 1, path: str = "spin.tar.gz", **spec: Any
    ) -> None:
        """Create the Shim, or change what is given; ``path`` may say how they go (support.nodes.installers)."""
        source = {"location": f"https://example.com/{path}"} | ({"sha256": sha256} if sha256 else {})
        manifest = {
            "apiVersion": "runtime.spinkube.dev/v1alpha1",
            "kind": "Shim",
            "metadata": {"name": self.name, "labels": self.labels},
            "spec": {
                "nodeSelector": {"test": self.fleet.id},
                "fetchStrategy": {"anonHttp": source},
                "runtimeClass": {"name": self.name, "handler": self.handler},
                "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": max_update}},
                **spec,
            },
        }
        status, answer = self.fleet.api.call("POST", SHIMS, manifest)
        if status == http.HTTPStatus.CONFLICT:
            status, answer = self.fleet.api.call("PATCH", f"{SHIMS}/{self.name}", {"spec": manifest["spec"]})
        assert status in {http.HTTPStatus.OK, http.HTTPStatus.CREATED}, answer

    def delete(self) -> None:
        """Ask for its deletion."""
        self.fleet.api.call("DELETE", f"{SHIMS}/{self.name}")

    def found(self) -> Manifest | None:
        """Return the object, None if it is deleted."""
        status, found = self.fleet.api.call("GET", f"{SHIMS}/{self.name}")
        return found if status == http.HTTPStatus.OK else None

    def runtime_class(self) -> Manifest | None:
        """Return its RuntimeClass, None if there is none."""
        status, found = self.fleet.api.call("GET", f"{CLASSES}/{self.name}")
        return found if status == http.HTTPStatus.OK else None

    def condition(self, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition."""
        conditions = ((self.found() or {}).get("status") or {}).get("conditions") or []
        return next(
            ((condition["status"], condition["reason"]) for condition in conditions if condition["type"] == kind),
            ("", ""),
        )

    def message(self, kind: str) -> str:
        """Return what a condition says to people."""
        conditions = ((self.found() or {}).get("status") or {}).get("conditions") or []
        return next((str(condition["message"]) for condition in conditions if condition["type"] == kind), "")

    def observed(self) -> bool:
        """Say whether its status is that of the spec as it is now."""
        found = self.found() or {}
        seen = (found.get("status") or {}).get("observedGeneration")
        return bool(found) and seen == found["metadata"]["generation"]

    def counts(self) -> tuple[int, ...]:
        """Return nodes, ready and updated ones."""
        status = (self.found() or {}).get("status") or {}
        return tuple(status.get(name, -1) for name in ("nodes", "nodesReady", "nodesUpdated"))

    def has(self, node: str) -> bool:
        """Say whether a node is labelled with it."""
        return self.fleet.labels(node).get(self.name) == names.SHIM_PROVISIONED


@pytest.fixture
def shim(fleet: Fleet) -> Shim:
    """The test's Shim, its kind served."""
    ensure_served(fleet.api, *OURS)
    return Shim(fleet)
