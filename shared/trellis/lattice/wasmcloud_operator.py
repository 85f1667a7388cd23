"""Watches for wasmcloud-operator: while it runs, who replaces it keeps its hands off, and looks again afterwards.

In: Deployments as an informer has them. Out: the controller that is active, and a call when that changes. Called by
``app`` of services that replace another. Invariant: which of several is named does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trellis.kube.informer import Change
from trellis.provisioning.other_controllers import Controller, Peer, view_controller
from trellis.telemetry import get_logger

_log = get_logger(__name__)


class Waiting(Protocol):
    """Who keeps its hands off while ``controller`` is there."""

    controller: Controller | None


def view_operator(deployment: Mapping[str, Any]) -> Controller | None:
    """Return wasmcloud-operator, if that is what a Deployment runs and nobody took over."""
    found = view_controller(deployment, (Peer.WASMCLOUD_OPERATOR,))
    return found if found is not None and not found.taken_over else None


def on_operator(
    known: Waiting, found: Mapping[str, Controller | None], list_all: Callable[[], None]
) -> Callable[[Change[Controller | None]], None]:
    """Return the handler of changes of Deployments; most of them run no controller that matters here."""

    def handle(change: Change[Controller | None]) -> None:
        if change.old is None and change.new is None:
            return
        before = known.controller
        active = sorted((one for one in found.values() if one is not None), key=lambda one: one.place)
        known.controller = active[0] if active else None
        if before == known.controller:
            return
        if known.controller is not None:
            _log.warning("another controller is active, writing nothing", advice=known.controller.advice)
        else:
            _log.info("other controller stopped or taken over")
        list_all()

    return handle
