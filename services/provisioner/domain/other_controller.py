"""The condition of a Shim while another controller works on the same objects, and after that has ended.

Pure. Called by ``shim_gather`` and ``shim_decide``. ``trellis.provisioning.other_controllers`` lists the controllers.
Invariant: a Shim on which no other controller ever worked has no such condition.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from trellis.provisioning.other_controllers import Controller, Peer, blocking_controller
from trellis.provisioning.views import NodeView


class Reason(StrEnum):
    """Reasons of the condition."""

    KWASM = "KWasmOperatorRuns"
    RCM = "RuntimeClassManagerRuns"
    NONE = "NoOtherController"


def working_on(shim: str, nodes: Iterable[NodeView], controllers: Iterable[Controller]) -> Controller | None:
    """Return the controller that prevents work on a Shim or on some of its nodes; one for all nodes comes first."""
    controllers = tuple(controllers)
    whole = next((controller for controller in controllers if controller.peer is Peer.RCM), None)
    return whole or next((found for node in nodes if (found := blocking_controller(node, (shim,), controllers))), None)


def keeps_off_all(controller: Controller | None) -> bool:
    """Return whether a controller writes Shims themselves, their finalizers, status and RuntimeClasses."""
    return controller is not None and controller.peer is Peer.RCM


def verdict(controller: Controller | None, *, reported_before: bool) -> tuple[str, str, str] | None:
    """Return status, reason and message of the condition; None for no condition at all."""
    if controller is not None:
        reason = Reason.RCM if controller.peer is Peer.RCM else Reason.KWASM
        return "True", reason.value, controller.advice
    return ("False", Reason.NONE.value, "") if reported_before else None
