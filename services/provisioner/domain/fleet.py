"""What each node is to have by the Shims as they are, and which nodes a plan has to look at.

Pure. In: nodes and Shims, and the names of nodes that changed. Out: targets, the nodes at which something is to be
done, and how many others have each Shim. Called by ``known``, ``gather``, and ``watches``, which tells of changes.
Invariants: a target is worked out once while neither its node nor a Shim changes; what a question costs does not grow
with the nodes that rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from trellis.provisioning.attempts import changes_of
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import NodeView, Target

TargetOf = Callable[[NodeView, tuple[ShimView, ...]], Target | None]
"""Returns what a node is to have by all Shims, None if nothing."""


@dataclass(frozen=True, slots=True)
class _Standing:
    node: NodeView
    target: Target | None

    @property
    def at_rest(self) -> bool:
        return self.target is None or self.node.skip is not None or rests(self.node, self.target)

    @property
    def counted(self) -> tuple[str, ...]:
        """Shims of whose nodes a node at rest is one."""
        if self.target is None or self.node.skip is not None:
            return ()
        return tuple(name for name, _ in self.target.shims)


def rests(node: NodeView, target: Target) -> bool:
    """Say whether a node has what it is to have, and nothing failed there."""
    return node.failed_attempt is None and node.failed_shims is None and not changes_of(node, target)


class Fleet:
    """``nodes`` and ``shims`` by name are others' to change; :meth:`take` is told of each change of a node."""

    def __init__(self, nodes: Mapping[str, NodeView], shims: Mapping[str, ShimView], target_of: TargetOf) -> None:
        self._nodes, self._shims, self._target_of = nodes, shims, target_of
        self._by: tuple[ShimView, ...] = ()
        self._standings: dict[str, _Standing] = {}
        self._names: dict[str, str] = {}  # by uid
        self._restless: set[str] = set()
        self._resting: Counter[str] = Counter()
        self._stale = set(nodes)

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
        chosen = dict.fromkeys(sorted(self._restless))
        for uid in uids:
            if (name := self._names.get(uid)) is not None and name not in chosen:
                chosen[name] = None
                others.subtract(self._standings[name].counted)
        return [(self._nodes[name], self._standings[name].target) for name in chosen], +others

    def _settle(self) -> None:
        shims = tuple(self._shims.values())
        if any(a is not b for a, b in zip_longest(shims, self._by)):
            if shims != self._by:  # that a status was written changes no target
                self._stale |= self._nodes.keys() | self._standings.keys()
            self._by = shims
        for name in self._stale:
            self._drop(name)
            if (node := self._nodes.get(name)) is not None:
                self._add(name, node)
        self._stale.clear()

    def _add(self, name: str, node: NodeView) -> None:
        standing = self._standings[name] = _Standing(node, self._target_of(node, self._by))
        self._names[node.uid] = name
        if standing.at_rest:
            self._resting.update(standing.counted)
        else:
            self._restless.add(name)

    def _drop(self, name: str) -> None:
        standing = self._standings.pop(name, None)
        if standing is None:
            return
        if self._names.get(standing.node.uid) == name:
            del self._names[standing.node.uid]
        if standing.at_rest:
            self._resting.subtract(standing.counted)
        self._restless.discard(name)
