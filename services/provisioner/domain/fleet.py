"""What each node is to have by the Shims as they are, which nodes a plan has to look at, and the nodes of each Shim.

Pure. In: nodes and Shims, and the names of nodes that changed. Out: targets, the nodes at which something is to be
done, how many others have each Shim, and a tally for each Shim. Called by ``cache``, ``gather``, ``shim_gather``, and
``watches``, which tells of changes. Invariants: what follows from a node is worked out once while neither it nor a Shim
changes; what a question costs does not grow with the nodes that rest.
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
"""Returns what a node is to have by all Shims, None if nothing."""
MemberOf = Callable[[ShimView, NodeView, tuple[ShimView, ...]], Member | None]
"""Returns a node among those of a Shim, by all Shims; None if it is none of them."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """``counted``: the Shims of whose nodes a node at rest is one, None if it is not at rest."""

    node: NodeView
    target: Target | None
    counted: tuple[str, ...] | None

    @classmethod
    def of(cls, node: NodeView, target: Target | None) -> _Standing:
        if target is None or node.skip is not None:
            return cls(node, target, ())
        return cls(node, target, tuple(name for name, _ in target.shims) if rests(node, target) else None)


def rests(node: NodeView, target: Target) -> bool:
    """Return whether a node has what it is to have, and nothing failed there."""
    return node.failed_attempt is None and node.failed_shims is None and not changes_of(node, target)


class Fleet:
    """``nodes`` and ``shims`` by name are others' to change; :meth:`take` is told of each change of a node."""

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
        """Take it that a node is there, gone, or another than before."""
        self._stale.add(name)

    def target(self, node: NodeView) -> Target | None:
        """Return what a node is to have."""
        self._settle()
        standing = self._standings.get(node.name)
        if standing is not None and (standing.node is node or standing.node == node):
            return standing.target
        return self._target_of(node, self._by)

    def look_at(self, uids: Iterable[str]) -> tuple[list[tuple[NodeView, Target | None]], Counter[str]]:
        """Return the nodes with something to do and those of these uids, and of how many others each Shim's nodes are.

        So a plan of these alone is the plan of all nodes.
        """
        self._settle()
        others = Counter(self._resting)
        chosen = dict.fromkeys(self._restless)
        for uid in uids:
            if (name := self._names.get(uid)) is not None and name not in chosen:
                chosen[name] = None
                others.subtract(self._standings[name].counted or ())
        return [(self._nodes[name], self._standings[name].target) for name in chosen], +others

    def restless(self) -> list[NodeView]:
        """Return the nodes at which something is to be done, by name."""
        self._settle()
        return [self._nodes[name] for name in sorted(self._restless)]

    def named(self, uids: Iterable[str]) -> list[NodeView]:
        """Return the nodes of these uids, without those that are gone."""
        self._settle()
        return [self._nodes[name] for uid in uids if (name := self._names.get(uid)) is not None]

    def tally(self, shim: ShimView) -> Tally:
        """Return the nodes of a Shim: the kept tally for the view of now, for another one that of a look at all."""
        self._settle()
        if self._shims.get(shim.name) == shim:
            return self._tallies[shim.name]
        by = (*(one for one in self._by if one.name != shim.name), shim)
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
            if shims != former:  # that a status was written changes no target
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
        if standing.counted is None:
            self._restless.add(name)
        else:
            self._resting.update(standing.counted)
        for shim in self._by:
            if (member := self._member_of(shim, node, self._by)) is not None:
                self._tallies[shim.name].add(member)

    def _drop(self, name: str) -> None:
        standing = self._standings.pop(name, None)
        if standing is None:
            return
        if self._names.get(standing.node.uid) == name:
            del self._names[standing.node.uid]
        self._resting.subtract(standing.counted or ())
        self._restless.discard(name)
        for tally in self._tallies.values():
            tally.drop(name)
