"""What wakes host_manager from Kubernetes besides groups: what runs their pods, pods, the operator that it replaces.

In: changes from the informers. Out: keys in the queues. Called by the informers, in the event loop.
Invariant: nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from host_manager.domain.pods import PodView
from host_manager.domain.views import GroupView
from host_manager.domain.workloads import WorkloadView
from host_manager.gather import Known
from trellis import names
from trellis.kube.informer import Change
from trellis.provisioning.other_controllers import NAMES, Peer
from trellis.telemetry import get_logger

Wake = Callable[[str], None]
_log = get_logger(__name__)


def only_our_mark(change: Change[GroupView]) -> bool:
    """Say whether a group differs only in that it has our finalizer now."""
    if change.old is None or change.new is None or names.FINALIZER_HOSTS not in change.new.finalizers:
        return False
    return replace(change.old, finalizers=()) == replace(change.new, finalizers=())


def on_group(known: Known, wake: Wake) -> Callable[[Change[GroupView]], None]:
    """Return the handler of changes of groups."""

    def handle(change: Change[GroupView]) -> None:
        if change.old is None:
            known.waiting.add(change.key)
        if not only_our_mark(change):
            known.doubt(change.key)
            wake(change.key)

    return handle


def on_workload(known: Known, wake: Wake) -> Callable[[Change[WorkloadView]], None]:
    """Return the handler of changes of what runs pods; a run finds out whether somebody else wrote there."""

    def handle(change: Change[WorkloadView]) -> None:
        if change.new is None:
            known.doubt(change.key)
        elif not change.new.seen and known.early_for(change.key) is not None:
            return  # made a moment ago: there is nothing to say of it yet, and its first status comes by itself
        wake(change.key)

    return handle


def on_pod(known: Known, wake_group: Wake, wake_pod: Wake) -> Callable[[Change[PodView]], None]:
    """Return the handler of changes of pods; what a group's status says of them may wait a moment, facts may not."""

    def handle(change: Change[PodView]) -> None:
        for pod in (change.old, change.new):
            if pod is not None:
                known.by_group.setdefault(pod.group_key, {}).pop(change.key, None)
        if change.new is not None:
            known.by_group[change.new.group_key][change.key] = change.new
        for key in {pod.group_key for pod in (change.old, change.new) if pod is not None}:
            if not known.by_group[key]:
                del known.by_group[key]
            wake_group(key)
        wake_pod(change.key)

    return handle


POD_SELECTOR: Final = f"{names.LABEL_MANAGED_BY} in ({','.join(sorted(NAMES[Peer.WASMCLOUD_OPERATOR]))})"
"""Pods of groups, and what runs them: as wasmcloud-operator labels them, and as it did before 0.5.1."""
