"""All that was read about one pod, or about one owner and its pods, as one value with its lookups.

Pure. In: views, log lines, and the reasons of what could not be read. Out: ``Snapshot``. Created by the reader of
pages; used by the checks. Invariants: a part in ``unread`` is not known, and nothing is concluded from its absence; a
page of 5,000 pods on 5,000 nodes takes one pass over each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Final

from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import NodeTaint, NodeView
from trellis.read_model.wasm_pods.nodes import has_labels, untolerated
from trellis.read_model.wasm_pods.owners import ExecutorView, OwnerView, RuntimeClassView
from trellis.read_model.wasm_pods.pods import EventView, Pairs, Toleration, WasmPod


class Part(StrEnum):
    """A part of a snapshot: a kind by its plural."""

    PODS = "pods"
    LOGS = "pods/log"
    EVENTS = "events"
    CLASSES = "runtimeclasses"
    NODES = "nodes"
    SHIMS = "shims"
    JOBS = "jobs"
    DEPLOYMENTS = "deployments"
    EXECUTORS = "spinappexecutors"


@dataclass(frozen=True)
class Snapshot:
    """The result of all reads. ``logs``: last lines of the containers that ended, by the UID of their pod.

    ``deployment``: that has the name of a SpinApp; ``executor``: of a SpinApp; ``job``: the newest one of a CronJob;
    None if they do not exist or were not read.
    ``unread``: parts that are not known, with the reason.
    """

    pods: Sequence[WasmPod] = ()
    events: Sequence[EventView] = ()
    classes: Sequence[RuntimeClassView] = ()
    nodes: Sequence[NodeView] = ()
    shims: Sequence[ShimView] = ()
    logs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    deployment: OwnerView | None = None
    executor: ExecutorView | None = None
    job: OwnerView | None = None
    unread: Mapping[Part, str] = field(default_factory=dict)

    def knows(self, part: Part) -> bool:
        """Return whether a part is known."""
        return part not in self.unread

    def of(
        self, pods: Sequence[WasmPod], deployment: OwnerView | None = None, executor: ExecutorView | None = None
    ) -> Snapshot:
        """Return the snapshot of one owner in the same cluster. It shares the lookups: a table has many owners."""
        return self._sharing(replace(self, pods=pods, deployment=deployment, executor=executor))

    def lacking(self, unread: Mapping[Part, str]) -> Snapshot:
        """Return the snapshot for a reader that cannot read these parts, with the same lookups."""
        return self._sharing(replace(self, unread=unread))

    def _sharing(self, other: Snapshot) -> Snapshot:
        vars(other).update({name: getattr(self, name) for name in _LOOKUPS})
        return other

    def runtime_class(self, name: str) -> RuntimeClassView | None:
        """Return the RuntimeClass of a name, None if there is none or if it is not known."""
        return self._classes.get(name)

    def node(self, name: str) -> NodeView | None:
        """Return the Node of a name, None if there is none or if it is not known."""
        return self._nodes.get(name)

    def shim_of(self, handler: str, runtime_class: str = "") -> ShimView | None:
        """Return the Shim that provides a handler; None if none does.

        Of several, it is the one that names the RuntimeClass: Shims of different nodes can have one handler, each with
        its label. Otherwise it is the oldest one (ADR 108).
        """
        found = [shim for shim in self.shims if handler and shim.handler == handler]
        named = [shim for shim in found if runtime_class and shim.runtime_class == runtime_class]
        return min(named or found, key=lambda shim: (shim.deleting, shim.created_at, shim.name), default=None)

    def events_of(self, uid: str, *reasons: str) -> list[EventView]:
        """Return the Events of these reasons about an object, the newest first."""
        return [event for event in self._events.get(uid, ()) if event.reason in reasons]

    def nodes_with(self, selector: Pairs) -> list[NodeView]:
        """Return the Nodes with the labels of a selector, by name."""
        if selector not in self._by_selector:
            found = [node for node in self.nodes if has_labels(node.label_values(), selector)]
            self._by_selector[selector] = sorted(found, key=lambda node: node.name)
        return self._by_selector[selector]

    def taints_of(self, selector: Pairs, tolerations: tuple[Toleration, ...]) -> Counter[NodeTaint]:
        """Return the taints that keep a pod from the Nodes with these labels, one of each Node, with their number."""
        key = selector, tolerations
        if key not in self._by_tolerations:
            found = (untolerated(node.taints, tolerations) for node in self.nodes_with(selector))
            self._by_tolerations[key] = Counter(replace(taint, time_added=None) for taint in found if taint is not None)
        return self._by_tolerations[key]

    @cached_property
    def _by_tolerations(self) -> dict[tuple[Pairs, tuple[Toleration, ...]], Counter[NodeTaint]]:
        return {}

    @cached_property
    def _by_selector(self) -> dict[Pairs, list[NodeView]]:
        return {}

    @cached_property
    def _classes(self) -> Mapping[str, RuntimeClassView]:
        return {item.name: item for item in self.classes}

    @cached_property
    def _nodes(self) -> Mapping[str, NodeView]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _events(self) -> Mapping[str, list[EventView]]:
        found: dict[str, list[EventView]] = defaultdict(list)
        for event in sorted(self.events, key=lambda item: -item.at):
            if event.uid:
                found[event.uid].append(event)
        return found


_LOOKUPS: Final = tuple(name for name, value in vars(Snapshot).items() if isinstance(value, cached_property))
