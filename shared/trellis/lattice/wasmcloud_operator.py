"""Watches for wasmcloud-operator: while it runs, the service that replaces it writes nothing, then reconciles all.

In: Deployments of an informer. Out: the active controller, and a call when it changes. Called by ``app`` of services
that replace another controller. Invariant: of several controllers, the named one does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trellis.kube.informer import Change
from trellis.provisioning.other_controllers import Controller, Peer, view_controller
from trellis.telemetry import get_logger

_log = get_logger(__name__)


class Waiting(Protocol):
    """A component that writes nothing while ``controller`` is not None."""

    controller: Controller | None


def view_operator(deployment: Mapping[str, Any]) -> Controller | None:
    """Return wasmcloud-operator if a Deployment runs it and it is not taken over, otherwise None."""
    found = view_controller(deployment, (Peer.WASMCLOUD_OPERATOR,))
    return found if found is not None and not found.taken_over else None


def on_operator(
    known: Waiting, found: Mapping[str, Controller], list_all: Callable[[], None]
) -> Callable[[Change[Controller]], None]:
    """Return the handler of changes of Deployments that run such a controller."""

    def handle(_: Change[Controller]) -> None:
        before = known.controller
        active = sorted(found.values(), key=lambda item: item.place)
        known.controller = active[0] if active else None
        if before == known.controller:
            return
        if known.controller is not None:
            _log.warning("another controller is active, writing nothing", advice=known.controller.advice)
        else:
            _log.info("other controller stopped or taken over")
        list_all()

    return handle
