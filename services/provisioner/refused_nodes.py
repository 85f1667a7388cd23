"""The nodes on which the API server refuses what provisioning needs, during one term of leadership.

In: reports of ``decide`` and refused writes, from ``apply``. Out: words for the status of Shims and for readiness.
Invariant: readiness names a refusal as long as one node has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from trellis.provision_reasons import Reason
from trellis.provisioning import NodeView


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing comes of a node. ``message``: with the API server's words."""

    node: str
    reason: Reason
    message: str


@dataclass(eq=False)
class RefusedNodes:
    """By uid of the Node. ``report`` takes a text for readiness, "" for none."""

    report: Callable[[str], None] = lambda _: None
    by_uid: dict[str, Refusal] = field(default_factory=dict)

    def take(self, node: NodeView, reason: Reason, message: str) -> bool:
        """Note a refusal; return whether it is news."""
        refusal = Refusal(node.name, reason, message)
        news = self.by_uid.get(node.uid) != refusal
        self.by_uid[node.uid] = refusal
        self._report()
        return news

    def end(self, node_uid: str) -> bool:
        """Forget a node; return whether it was refused something."""
        ended = self.by_uid.pop(node_uid, None) is not None
        if ended:
            self._report()
        return ended

    def words(self, node_uid: str) -> str:
        """Return what was reported of a node, with the API server's words; "" if nothing is refused there."""
        return self.by_uid[node_uid].message if node_uid in self.by_uid else ""

    async def run(self) -> None:
        """Wait until the term ends, and report nothing any more: another replica provisions then."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.report("")

    def _report(self) -> None:
        last = next(reversed(self.by_uid.values()), None)
        count = len(self.by_uid)
        self.report(f"{count} node{'s' * (count != 1)}, {last.node}: {last.message}" if last is not None else "")
