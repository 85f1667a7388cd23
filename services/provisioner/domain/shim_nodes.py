"""The nodes of one Shim: those that it is for, and those that have it.

Pure. In: nodes, one by one, as they are added, changed and deleted. Out: their counts, and the few that a status names.
Called by ``fleet``, which keeps a tally for each Shim, and ``shim_gather``. Invariants: the duration of the change of
one node does not depend on the number of nodes; a node on which no installer can run does not count for the progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from trellis.installer_api.spec import WantedShim
from trellis.provisioning.shims import Refusal, ShimView, is_for
from trellis.provisioning.targets import label_rival_of, rival_of, stays_on, wanted_shim_on
from trellis.provisioning.views import VERIFICATION_FAILED, NodeView, last_verified


@dataclass(frozen=True, slots=True)
class Member:
    """A node of a Shim.

    ``wanted``: the version to install there, or why none is; None if the Shim is not for the node. ``has``: the digest
    by the node's marks, None if the node does not have the Shim. ``rival``: the Shim that has its handler there, or
    that selects the node by its label. ``placeable``: the labels of the node match the placement of the Shim's pods.
    """

    node: NodeView
    wanted: WantedShim | Refusal | None
    has: str | None
    rival: str = ""
    placeable: bool = True


@dataclass(frozen=True, slots=True)
class ShimNodes:
    """The nodes of a Shim.

    ``nodes``: how many it is for; ``ready``: of these, how many have a verified version; ``updated``: the present one;
    ``placeable``: how many of these match the placement of pods; ``holding``: how many nodes have it. ``digests``: the
    target versions of nodes. ``skipped``: nodes that it is for but on which no installer can run; ``to_remove``: nodes
    that have it, no longer require it, and are not skipped; ``unavailable``: nodes with pending work that are not
    ready. ``refused``: nodes by the reason why nothing is installed there. ``rivals``: Shims that have its handler or
    label on nodes that it is for. ``carried``: architectures and last verified digests of nodes.
    """

    nodes: int = 0
    ready: int = 0
    updated: int = 0
    holding: int = 0
    placeable: int = 0
    digests: frozenset[str] = frozenset()
    skipped: tuple[NodeView, ...] = ()
    to_remove: tuple[NodeView, ...] = ()
    unavailable: tuple[NodeView, ...] = ()
    refused: Mapping[Refusal, tuple[NodeView, ...]] = field(default_factory=dict, hash=False)
    rivals: tuple[str, ...] = ()
    carried: frozenset[tuple[str, str]] = frozenset()


class _Kind(Enum):
    NODES = auto()
    READY = auto()
    UPDATED = auto()
    HOLDING = auto()
    PLACEABLE = auto()
    DIGEST = auto()
    RIVAL = auto()
    CARRIED = auto()
    SKIPPED = auto()
    REMOVING = auto()
    UNAVAILABLE = auto()
    REFUSED = auto()


_NAMED: Final = frozenset({_Kind.SKIPPED, _Kind.REMOVING, _Kind.UNAVAILABLE, _Kind.REFUSED})
"""Kinds whose nodes a status names; the nodes of other kinds are counted."""
_CountKey = tuple[_Kind, Hashable]


class Tally:
    """Members by the names of their nodes, with their totals."""

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.members: dict[str, Member] = {}
        self._counts: Counter[_CountKey] = Counter()
        self._named: dict[_CountKey, dict[str, NodeView]] = {}
        for member in members:
            self.add(member)

    def add(self, member: Member) -> None:
        """Add a member; a former one of its name was dropped before."""
        name = member.node.name
        self.members[name] = member
        for key in _marks(member):
            self._counts[key] += 1
            if key[0] in _NAMED:
                self._named.setdefault(key, {})[name] = member.node

    def drop(self, name: str) -> None:
        """Remove the member of this name, if there is one."""
        if (member := self.members.pop(name, None)) is None:
            return
        for key in _marks(member):
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
            if key[0] in _NAMED:
                del self._named[key][name]

    def nodes(self) -> ShimNodes:
        """Return the totals of the present members."""
        details: dict[_Kind, list[Hashable]] = {}
        for kind, detail in self._counts:
            details.setdefault(kind, []).append(detail)
        return ShimNodes(
            nodes=self._counts[_Kind.NODES, None],
            ready=self._counts[_Kind.READY, None],
            updated=self._counts[_Kind.UPDATED, None],
            holding=self._counts[_Kind.HOLDING, None],
            placeable=self._counts[_Kind.PLACEABLE, None],
            digests=frozenset(map(str, details.get(_Kind.DIGEST, ()))),
            skipped=self._all(_Kind.SKIPPED),
            to_remove=self._all(_Kind.REMOVING),
            unavailable=self._all(_Kind.UNAVAILABLE),
            refused={item: self._all(_Kind.REFUSED, item) for item in Refusal if (_Kind.REFUSED, item) in self._counts},
            rivals=tuple(sorted(map(str, details.get(_Kind.RIVAL, ())))),
            carried=frozenset(item for item in details.get(_Kind.CARRIED, ()) if isinstance(item, tuple)),
        )

    def _all(self, kind: _Kind, detail: Hashable = None) -> tuple[NodeView, ...]:
        return tuple(self._named.get((kind, detail), {}).values())


def member_of(
    shim: ShimView, node: NodeView, shims: Iterable[ShimView], *, auto_provision: bool, require_checksum: bool
) -> Member | None:
    """Return the member of a Shim for a node, None if the Shim is neither for it nor on it; ``shims``: all Shims."""
    has = node.installed.get(shim.name)
    if is_for(shim, node, auto_provision=auto_provision) or stays_on(shim, node):
        shims = tuple(shims)
        wanted = wanted_shim_on(shim, node, shims, auto_provision=auto_provision, require_checksum=require_checksum)
        rival = rival_of(shim, node, shims, auto_provision=auto_provision)
        if wanted is Refusal.LABEL_CONFLICT:
            rival = label_rival_of(shim, node, shims, auto_provision=auto_provision)
        return Member(node, wanted, has, rival, shim.placement.selects(node.label_values()))
    return None if has is None else Member(node, None, has)


def _marks(member: Member) -> Iterator[_CountKey]:
    """Yield the totals for which a member counts."""
    node, wanted, has = member.node, member.wanted, member.has
    if has is not None:
        yield _Kind.HOLDING, None
        yield _Kind.CARRIED, (node.architecture, last_verified(has))
    if isinstance(wanted, WantedShim):
        yield _Kind.DIGEST, wanted.digest
    elif wanted is not None:
        yield _Kind.REFUSED, wanted
    if member.rival:
        yield _Kind.RIVAL, member.rival
    if node.skip is None:
        yield from _progress(member)
    elif wanted is not None:
        yield _Kind.SKIPPED, None


def _progress(member: Member) -> Iterator[_CountKey]:
    """Yield the totals of progress for which a member counts whose node is not skipped."""
    wanted, has = member.wanted, member.has
    updated = isinstance(wanted, WantedShim) and has == wanted.digest
    if wanted is not None and member.placeable:
        yield _Kind.PLACEABLE, None
    yield (_Kind.REMOVING if wanted is None else _Kind.NODES), None
    if wanted is not None and has is not None and not has.startswith(VERIFICATION_FAILED):
        yield _Kind.READY, None
    if updated:
        yield _Kind.UPDATED, None
    elif not member.node.ready:
        yield _Kind.UNAVAILABLE, None
