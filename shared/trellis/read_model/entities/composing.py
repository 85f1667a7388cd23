"""Entities of one viewer: which of them change if an object changes.

Pure, with a memory. In: changes of views, part by part. Out: entities that may differ, None for a deleted one. Called
by ``live_model``, at most a few times per second. Invariant: after any sequence of changes the entities are those of a
composer that received only the final state; its test compares both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trellis.lattice.domain.service_views import PodView
from trellis.provisioning.job_index import JobIndex
from trellis.provisioning.ledger import Ledger
from trellis.provisioning.views import JobState, JobView, NodeView
from trellis.read_model.entities import entities
from trellis.read_model.entities.cards import (
    AppCard,
    ControllerCard,
    Ends,
    GroupCard,
    InstallerCard,
    ServiceCard,
    ShimCard,
)
from trellis.read_model.entities.entities import PartStatus, identity, of_key
from trellis.read_model.entities.journal import Entity
from trellis.read_model.explain.application import AppGroup
from trellis.read_model.explain.page import Line
from trellis.read_model.tables.nodes import installs_kwasm, is_unserved, row_of, with_causes
from trellis.read_model.tables.rollout import (
    Outlook,
    RolloutSnapshot,
    ShimNode,
    Standing,
    node_of,
    outlook_of,
    standing_with,
)

_NO_LEDGER: Final = Ledger({})


@dataclass(eq=False)
class Seen:
    """Objects that a viewer can read, by part; keys are ``namespace/name`` or ``name``."""

    nodes: dict[str, NodeView] = field(default_factory=dict)
    jobs: dict[str, JobView] = field(default_factory=dict)
    installers: dict[str, InstallerCard] = field(default_factory=dict)
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    shims: dict[str, ShimCard] = field(default_factory=dict)
    groups: dict[str, GroupCard] = field(default_factory=dict)
    pods: dict[str, PodView] = field(default_factory=dict)
    applications: dict[str, AppCard] = field(default_factory=dict)
    services: dict[str, ServiceCard] = field(default_factory=dict)
    slices: dict[str, Ends] = field(default_factory=dict)
    controllers: dict[str, ControllerCard] = field(default_factory=dict)


PARTS: Final = tuple(Seen().__dict__)
"""Names of the parts."""


_SERVING: Final = ("nodes", "shims", "ledgers")
"""Parts that show whether there is something to install on a node."""


@dataclass(frozen=True, slots=True)
class _Rollout:
    """Stage of each node in the rollout of one Shim, by its name."""

    outlook: Outlook
    nodes: dict[str, ShimNode]


class Composer:
    """The entities of one viewer."""

    def __init__(self) -> None:
        self.seen: Final = Seen()
        self._jobs = JobIndex()
        self._pods_of: dict[str, set[str]] = {}
        self._slices_of: dict[str, set[str]] = {}
        self._rollouts: dict[str, _Rollout] = {}
        self._kwasm = False
        self._kwasm_nodes: set[str] = set()
        self._dirty: dict[str, set[str]] = {part: set() for part in PARTS}
        self._parts: dict[str, PartStatus] = {}

    def take(self, part: str, key: str, new: Any) -> None:  # noqa: ANN401 - the view that belongs to the part
        """Store the current view of an object, None if it is deleted; ``flush`` computes the entities."""
        objects: dict[str, Any] = getattr(self.seen, part)
        old = objects.pop(key, None)
        if new is not None:
            objects[key] = new
        self._dirty[part].add(key)
        self._index(part, key, old, new)

    def report(self, status: PartStatus) -> None:
        """Store the read status of a part."""
        former = self._parts.get(status.name)
        self._parts[status.name] = status
        if status.name == "groups" and former != status:
            self._dirty["applications"].update(self.seen.applications)
        if status.name in _SERVING and former != status:
            self._dirty["nodes"].update(self.seen.nodes)

    def flush(self) -> dict[str, Entity | None]:
        """Return the entities that may differ from the last flush; None for deleted ones."""
        dirty, self._dirty = self._dirty, {part: set() for part in PARTS}
        changes: dict[str, Entity | None] = {}
        changes |= dict(self._nodes_and_shims(dirty))
        changes |= dict(self._groups_and_hosts(dirty))
        changes |= dict(self._services(dirty))
        changes |= dict(self._applications(dirty["applications"]))
        for key in dirty["controllers"]:
            card = self.seen.controllers.get(key)
            changes[of_key("controller", key)] = None if card is None else entities.controller_entity(card)
        changes |= {identity("part", "", name): entities.part_entity(item) for name, item in self._parts.items()}
        return changes

    def _index(self, part: str, key: str, old: Any, new: Any) -> None:  # noqa: ANN401 - as of take
        match part:
            case "jobs":
                self._jobs.change(old, new)
                self._dirty["nodes"].update(item.node for item in (old, new) if item is not None)
            case "installers":
                self._dirty["nodes"].update(
                    job.node for job in self.seen.jobs.values() if job.name in {each.job for each in (old, new) if each}
                )
            case "nodes":
                used = new is not None and installs_kwasm(_NO_LEDGER, [new])
                (self._kwasm_nodes.add if used else self._kwasm_nodes.discard)(key)
            case "pods":
                _move(self._pods_of, key, old and old.group_key, new and new.group_key)
            case "slices":
                _move(self._slices_of, key, old and old.service, new and new.service)
                self._dirty["services"].update(item.service for item in (old, new) if item is not None)
            case "groups":
                self._dirty["pods"].update(self._pods_of.get(key, ()))
                before, after = old and old.apps, new and new.apps
                if before != after:
                    namespace = key.partition("/")[0]
                    apps = self.seen.applications.items()
                    self._dirty["applications"].update(name for name, app in apps if app.namespace == namespace)
            case "ledgers":
                self._dirty["nodes"].update(self._in_progress(old, new))
            case _:
                pass

    def _in_progress(self, old: Ledger | None, new: Ledger | None) -> Iterator[str]:
        """Return the nodes whose slot differs."""
        before, after = (old or _NO_LEDGER).entries, (new or _NO_LEDGER).entries
        uids = {uid for uid in {*before, *after} if before.get(uid) != after.get(uid)}
        return (node.name for node in self.seen.nodes.values() if node.uid in uids)

    def _nodes_and_shims(self, dirty: dict[str, set[str]]) -> Iterator[tuple[str, Entity | None]]:
        ledger = next(iter(self.seen.ledgers.values()), _NO_LEDGER)
        touched, causes = set(dirty["nodes"]), self._pending_causes()
        served = all(map(self._is_complete, _SERVING))
        kwasm = bool(self._kwasm_nodes) or installs_kwasm(ledger, ())
        if dirty["shims"] or kwasm != self._kwasm:
            self._kwasm = kwasm
            # The stage shows whether a Shim selects a node, except on nodes where no installer runs.
            touched.update(node.name for node in self.seen.nodes.values() if node.skip or self._may_be_unserved(node))
        for name in self._rollouts.keys() - self.seen.shims.keys():
            touched.update(self._rollouts.pop(name).nodes)
            yield of_key("shim", name), None
        if dirty["nodes"] or dirty["shims"] or dirty["ledgers"]:
            for name, card in self.seen.shims.items():
                standing = self._standing(card, (ledger, causes), dirty["nodes"], touched)
                yield of_key("shim", name), entities.shim_entity(standing, card.view.handler, paused=card.view.paused)
        shims = [card.view for card in self.seen.shims.values()]
        for name in touched:
            node = self.seen.nodes.get(name)
            if node is None:
                yield of_key("node", name), None
                continue
            stages = {shim: item.nodes[name] for shim, item in self._rollouts.items() if name in item.nodes}
            entry, unserved = ledger.entries.get(node.uid), served and is_unserved(node, shims, kwasm=kwasm)
            known = shims if self._is_complete("shims") else None
            row = row_of(node, self._jobs.of_uid(node.uid), entry, known, stages, unserved=unserved)
            row = with_causes([row], causes)[0]
            yield of_key("node", name), entities.node_entity(row, node.architecture, stages)

    def _is_complete(self, part: str) -> bool:
        """Return whether all objects of a part were read."""
        status = self._parts.get(part)
        return status is not None and status.synced and not status.lacking

    def _may_be_unserved(self, node: NodeView) -> bool:
        """Return whether a node is opted in, and in no rollout."""
        return node.opt_in is not None and not any(node.name in item.nodes for item in self._rollouts.values())

    def _standing(
        self, card: ShimCard, of_nodes: tuple[Ledger, Mapping[str, Line]], dirty: set[str], touched: set[str]
    ) -> Standing:
        """Return the state of a rollout; nodes whose stage changed are added to ``touched``.

        While the input that all nodes share is unchanged, only changed nodes are read: pages follow rollouts over
        thousands of nodes.
        """
        shims, nodes = tuple(shim.view for shim in self.seen.shims.values()), self.seen.nodes
        ledger, causes = of_nodes
        snapshot = RolloutSnapshot(card.view, card.status, shims, tuple(nodes.values()), ledger, causes=causes)
        outlook, former = outlook_of(snapshot), self._rollouts.get(card.view.name)
        if former is not None and former.outlook == outlook:
            rollout, to_read = former, set(dirty)
        else:
            rollout = self._rollouts[card.view.name] = _Rollout(outlook, dict(former.nodes) if former else {})
            to_read = {*nodes, *rollout.nodes, *dirty}
        for name in to_read:
            node = nodes.get(name)
            stage = None if node is None else node_of(snapshot, node, outlook)
            if stage != rollout.nodes.get(name):
                touched.add(name)
            if stage is None:
                rollout.nodes.pop(name, None)
            else:
                rollout.nodes[name] = stage
        return standing_with(snapshot, outlook, rollout.nodes.values())

    def _pending_causes(self) -> dict[str, Line]:
        """Return by name of a node the cause that the pod of its installer Job does not start."""
        if not self.seen.installers:
            return {}
        nodes = {job.name: job.node for job in self.seen.jobs.values() if job.state is JobState.ACTIVE}
        return {
            nodes[installer.job]: installer.cause
            for installer in self.seen.installers.values()
            if installer.job in nodes
        }

    def _groups_and_hosts(self, dirty: dict[str, set[str]]) -> Iterator[tuple[str, Entity | None]]:
        for key in dirty["groups"]:
            card = self.seen.groups.get(key)
            yield of_key("hostgroup", key), None if card is None else entities.group_entity(card)
        for key in dirty["pods"]:
            pod = self.seen.pods.get(key)
            if pod is None:
                yield of_key("host", key), None
                continue
            yield of_key("host", key), entities.host_entity(pod, self.seen.groups.get(pod.group_key))

    def _applications(self, dirty: set[str]) -> Iterator[tuple[str, Entity | None]]:
        """Yield applications; host groups that the viewer cannot read are unknown, and not missing."""
        part = self._parts.get("groups")
        known = part is not None and part.synced and not part.lacking
        groups: dict[str, list[AppGroup]] = {}
        for group in self.seen.groups.values() if dirty and known else ():
            groups.setdefault(group.namespace, []).append(group.apps)
        for key in dirty:
            app = self.seen.applications.get(key)
            here = groups.get(app.namespace, []) if app is not None and known else None
            yield of_key("application", key), None if app is None else entities.application_entity(app, here)

    def _services(self, dirty: dict[str, set[str]]) -> Iterator[tuple[str, Entity | None]]:
        for key in dirty["services"]:
            card = self.seen.services.get(key)
            pieces = (self.seen.slices[item] for item in sorted(self._slices_of.get(key, ())))
            yield of_key("service", key), None if card is None else entities.service_entity(card, pieces)


def _move(index: dict[str, set[str]], key: str, old: str | None, new: str | None) -> None:
    if old:
        index[old].discard(key)
        if not index[old]:
            del index[old]
    if new:
        index.setdefault(new, set()).add(key)
