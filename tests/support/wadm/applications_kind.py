"""The kind Application on a real API server, as a test needs it: ours, another owner's, or hidden by another server."""

from __future__ import annotations

import http
import time
from collections.abc import Callable
from typing import Any

from support.cluster.definitions import ensure_served
from support.nodes.leftovers import as_new, leftover
from trellis.crds.kinds import APPLICATIONS, make_definition
from trellis.kube import resources
from trellis.kube.resources import API_SERVICES, DEFINITIONS
from trellis_dev.localcluster.api import Api

PATIENCE = 60.0
DEFINITION = DEFINITIONS.path(name=APPLICATIONS.name)
LIST = "/apis/core.oam.dev/v1beta1/applications"
REGISTRATION = "v1beta1.core.oam.dev"
Manifest = dict[str, Any]


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not so after {PATIENCE:.0f} s: {what}"
        time.sleep(0.05)


class ApplicationsKind:
    """``applications.core.oam.dev`` on the API server of a test, cleared after it: others define it too."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def define(self, manifest: Manifest | None = None) -> None:
        """Define it, as Trellis does unless a manifest is given, and wait until it is served."""

        def made() -> bool:
            status, answer = self.api.call("POST", DEFINITIONS.path(), manifest or make_definition(APPLICATIONS))
            assert status in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}, answer
            return status == http.HTTPStatus.CREATED

        until(made, "the former definition is gone")
        until(self.served, "it is served")

    def ensure(self) -> bool:
        """Create the CRD if it does not exist; returns whether it was, and so is to be cleared."""
        there = self.api.ok(DEFINITION)
        ensure_served(self.api, resources.APPLICATIONS)
        return not there

    def register(self, service: str) -> None:
        """Put an API of another server in front, as it would itself: also where the API server's own stands."""
        manifest = as_new(leftover("wasmcloud", "registration", namespace="wasm"))
        manifest["spec"]["service"]["name"] = service
        own = API_SERVICES.path(name=REGISTRATION)

        def registered() -> bool:
            if self.api.call("POST", API_SERVICES.path(), manifest)[0] == http.HTTPStatus.CREATED:
                return True
            # Else the API server would go on to keep it as its own.
            labels = {"kube-aggregator.kubernetes.io/automanaged": None}
            change = {"metadata": {"labels": labels}, "spec": manifest["spec"]}
            return self.api.call("PATCH", own, change)[0] == http.HTTPStatus.OK

        until(registered, "another server is registered")

    def served(self) -> bool:
        """Say whether it can be listed."""
        return self.api.ok(LIST)

    def stands(self) -> Manifest | None:
        """Return the definition, None if there is none."""
        status, found = self.api.call("GET", DEFINITION)
        return None if status == http.HTTPStatus.NOT_FOUND else found

    def clear(self) -> None:
        """Leave the API server as it was: other tests define applications too."""
        registration = API_SERVICES.path(name=REGISTRATION)
        status, found = self.api.call("GET", registration)
        if status == http.HTTPStatus.OK and (found.get("spec") or {}).get("service"):
            self.api.call("DELETE", registration)
        self.api.call("DELETE", DEFINITION)
        until(lambda: self.stands() is None, "the definition is gone")
        # The API server registers what is defined, and takes that away a moment after the definition.
        until(lambda: self.api.call("GET", registration)[0] == http.HTTPStatus.NOT_FOUND, "its registration is gone")
