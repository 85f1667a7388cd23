"""The state of workloads that the published events describe.

In: events in the order of their publication, or the last one of each subject. Out: the state that ``decide`` compares
with the pods. Called by the reconciler of workloads, also after a restart. Invariant: an event that is noted twice
changes nothing.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Final

from trellis.events.wasm_workloads import (
    WasmWorkloadEventData,
    WasmWorkloadFailed,
    WasmWorkloadRecovered,
    WasmWorkloadRunning,
)

EVENTS: Final = (WasmWorkloadRunning, WasmWorkloadFailed, WasmWorkloadRecovered)
LASTING: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "SpinApp", "CronJob"})
"""Kinds of owners that get other pods after their last one. Other ones can be created each second."""
_OWN: Final = frozenset({"Job", "Pod"})
"""Kinds whose objects are the controllers of their pods, if events are about them."""
Key = tuple[str, ...]
"""Namespace, kind and name of an owner."""


@dataclass(frozen=True, slots=True)
class State:
    """A workload as published. ``failing``: reasons since it last ran, in their order.

    ``pods``: UIDs of the pods in its events, and its own one if its pods are refused.
    """

    uid: str
    failing: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


@dataclass(slots=True)
class Published:
    """State by the published events. ``absent``: since when a workload has no pod, Unix seconds."""

    states: dict[Key, State] = field(default_factory=dict)
    absent: dict[Key, float] = field(default_factory=dict)

    def note(self, event: WasmWorkloadEventData) -> None:
        """Record an event that is published."""
        key = (event.namespace, event.kind, event.name)
        former = self.states.get(key)
        if former is None or former.uid != event.uid:
            former = State(event.uid)
        match event:
            case WasmWorkloadFailed():
                reasons = former.failing if event.reason in former.failing else (*former.failing, event.reason)
                uid = event.pod_uid or event.uid
                pods = former.pods if uid in former.pods else (*former.pods, uid)
                self.states[key] = replace(former, failing=reasons, pods=pods)
            case _:
                self.states[key] = State(event.uid, (), (event.pod_uid,))

    def needs_owners(self, event: WasmWorkloadEventData, controllers: Container[str]) -> bool:
        """Return whether the object of an event can be the owner of a controller, as an Argo Rollout is."""
        return event.kind not in LASTING | _OWN and event.uid not in controllers

    def restore(self, event: WasmWorkloadEventData, controllers: Container[str]) -> None:
        """Record an event of a former leader; ``controllers``: UIDs of those that have pods, or whose pods are refused.

        With the UIDs of the owners of these controllers, if they are needed.
        Events are stored for days. Those about owners that existed for one run are not needed once their pods are gone.
        """
        if event.kind in LASTING or event.uid in controllers:
            self.note(event)

    def keep(self, present: Container[Key], now: float, seconds: float) -> None:
        """Drop the workloads that have had no pod for so many seconds.

        A workload without pods can be between two of them, and its failure must not be published twice.
        """
        self.absent = {key: self.absent.get(key, now) for key in self.states if key not in present}
        for key in [key for key, since in self.absent.items() if now - since >= seconds]:
            del self.states[key], self.absent[key]
