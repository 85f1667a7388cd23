"""Computes the target of each node by the present Shims, the nodes for a plan, and the nodes of each Shim.

Pure. In: nodes and Shims, and the names of nodes that changed. Out: targets, the nodes with work to do, how many of the
remaining nodes have each Shim, and a tally for each Shim. Called by ``gather``, ``rollout_gather``, ``shim_gather``,
and ``cache``, which reports changes. Invariants: the state of a node is computed once while neither it nor a Shim
changes; the duration of a query does not grow with the number of nodes at rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from provisioner.domain.shim_nodes import Member, Tally
from trellis.provisioning.attempts import changes_of
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import NodeView, Target

TargetOf = Callable[[NodeView, tuple[ShimView, ...]], Target | None]
"""Returns the target of a node by all Shims, None if it has none."""
MemberOf = Callable[[ShimView, NodeView, tuple[ShimView, ...]], Member | None]
"""Returns the member of a Shim for a node, by all Shims; None if it is not one of its nodes."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """Cached state of a node. ``rests``: it has no work to do."""

    node: NodeView
    target: Target | None
    rests: bool

    @classmethod
    def of(cls, node: NodeView, target: Target | None) -> _Standing:
        return cls(node, target, target is None or node.skip is not None or rests(node, target))

    @property
    def counted(self) -> tuple[str, ...]:
        """The Shims for which it counts at rest."""
        if self.target is None or self.node.skip is not None or not self.rests:
            return ()
        return tuple(name for name, _ in self.target.shims)


def rests(node: NodeView, target: Target) -> bool:
    """Return whether a node has reached its target, and no failure is recorded there."""
    return node.failed_attempt is None and node.failed_shims is None and not changes_of(node, target)


class Fleet:
    """Targets and tallies. ``nodes`` and ``shims``: by name, filled by informers; :meth:`take` gets changed nodes."""

    def __init__(
        self,
        nodes: Mapping[str, NodeView],
        shims: Mapping[str, ShimView],
        target_of: TargetOf,
        member_of: MemberOf,
    ) -> None:
        self._nodes, self._shims = nodes, shims
        self._target_of, self._member_of = target_of, member_of
        self._by: tuple[ShimView, ...] = ()
        self._stale = set(nodes)
        self._forget()

    def take(self, name: str) -> None:
        """Mark a node as added, changed or deleted."""
        self._stale.add(name)

    def target(self, node: NodeView) -> Target | None:
        """Return the target of a node."""
        self._settle()
        standing = self._standings.get(node.name)
        if standing is not None and (standing.node is node or standing.node == node):
            return standing.target
        return self._target_of(node, self._by)

    def look_at(self, uids: Iterable[str]) -> tuple[list[tuple[NodeView, Target | None]], Counter[str]]:
        """Return the nodes with work to do and those of these UIDs, and the number of remaining nodes by Shim.

        A plan of these alone equals the plan of all nodes.
        """
        self._settle()
        others = Counter(self._resting)
        chosen = dict.fromkeys(self._restless)
        for uid in uids:
            if (name := self._names.get(uid)) is not None and name not in chosen:
                chosen[name] = None
                others.subtract(self._standings[name].counted)
        return [(self._nodes[name], self._standings[name].target) for name in chosen], +others

    def restless(self) -> list[NodeView]:
        """Return the nodes with work to do, by name."""
        self._settle()
        return [self._nodes[name] for name in sorted(self._restless)]

    def named(self, uids: Iterable[str]) -> list[NodeView]:
        """Return the nodes of these UIDs, without deleted ones."""
        self._settle()
        return [self._nodes[name] for uid in uids if (name := self._names.get(uid)) is not None]

    def tally(self, shim: ShimView) -> Tally:
        """Return the nodes of a Shim: the cached tally for the present view, a new one for another view."""
        self._settle()
        if self._shims.get(shim.name) == shim:
            return self._tallies[shim.name]
        by = (*(item for item in self._by if item.name != shim.name), shim)
        members = (self._member_of(shim, node, by) for node in self._nodes.values())
        return Tally(member for member in members if member is not None)

    def _forget(self) -> None:
        self._standings: dict[str, _Standing] = {}
        self._names: dict[str, str] = {}  # by uid
        self._restless: set[str] = set()
        self._resting: Counter[str] = Counter()
        self._tallies = {shim.name: Tally() for shim in self._by}

    def _settle(self) -> None:
        shims = tuple(self._shims.values())
        if any(a is not b for a, b in zip_longest(shims, self._by)):
            former, self._by = self._by, shims
            if shims != former:  # the write of a status changes no target
                self._stale |= self._nodes.keys()
                self._forget()
        for name in self._stale:
            self._drop(name)
            if (node := self._nodes.get(name)) is not None:
                self._add(name, node)
        self._stale.clear()

    def _add(self, name: str, node: NodeView) -> None:
        standing = self._standings[name] = _Standing.of(node, self._target_of(node, self._by))
        self._names[node.uid] = name
        self._resting.update(standing.counted)
        if not standing.rests:
            self._restless.add(name)
        for shim in self._by:
            if (member := self._member_of(shim, node, self._by)) is not None:
                self._tallies[shim.name].add(member)

    def _drop(self, name: str) -> None:
        standing = self._standings.pop(name, None)
        if standing is None:
            return
        if self._names.get(standing.node.uid) == name:
            del self._names[standing.node.uid]
        self._resting.subtract(standing.counted)
        self._restless.discard(name)
        for tally in self._tallies.values():
            tally.drop(name)
