"""The nodes on which the API server refuses what provisioning needs, during one term of leadership.

In: reports of ``decide`` and refused writes, from ``apply``. Out: words for the status of Shims and for readiness.
Invariant: readiness names a refusal by its reason, as the Node and its Shims do, as long as one node has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from trellis.provisioning.reasons import Reason
from trellis.provisioning.views import NodeView


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing comes of a node. ``message``: with the API server's words."""

    node: str
    reason: Reason
    message: str


@dataclass(eq=False)
class RefusedNodes:
    """By uid of the Node. ``report`` takes a reason and its text for readiness, "" for none."""

    report: Callable[[Reason, str], None] = lambda _reason, _text: None
    by_uid: dict[str, Refusal] = field(default_factory=dict)

    def take(self, node: NodeView, reason: Reason, message: str) -> bool:
        """Note a refusal; return whether it is news."""
        refusal = Refusal(node.name, reason, message)
        former = self.by_uid.get(node.uid)
        self.by_uid[node.uid] = refusal
        self._report(*{reason, former.reason if former is not None else reason})
        return former != refusal

    def end(self, node_uid: str) -> bool:
        """Forget a node; return whether it was refused something."""
        ended = self.by_uid.pop(node_uid, None)
        if ended is not None:
            self._report(ended.reason)
        return ended is not None

    def words(self, node_uid: str) -> str:
        """Return what was reported of a node, with the API server's words; "" if nothing is refused there."""
        return self.by_uid[node_uid].message if node_uid in self.by_uid else ""

    async def run(self) -> None:
        """Wait until the term ends, and report nothing any more: another replica provisions then."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for reason in {one.reason for one in self.by_uid.values()}:
                self.report(reason, "")

    def _report(self, *reasons: Reason) -> None:
        for reason in reasons:
            those = [one for one in self.by_uid.values() if one.reason is reason]
            count = f"{len(those)} node{'s' * (len(those) != 1)}"
            self.report(reason, f"{count}, {those[-1].node}: {those[-1].message}" if those else "")
