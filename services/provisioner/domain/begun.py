"""Installer Jobs that were asked for and that the watch does not show yet.

In: what is about to be made, and what the API server and the watch say of it. Out: the slots that such nodes keep.
Called by ``apply`` (before and after the request, and for nodes whose Job is in doubt), ``gather`` and ``watches``.
Invariant: a node is in here from before the request is sent until its Job is seen, or is known not to be there: only
then may its slot go to another node, or another Job be made for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trellis.provisioning.ledger import Entry, Ledger


@dataclass(eq=False)
class Begun:
    """By Node uid, the slot that a Job was asked for in, and the Job's name."""

    slots: dict[str, Entry] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)

    def begin(self, uid: str, what: tuple[str, int], job: str, ledgers: Sequence[Ledger]) -> bool:
        """Count a node as begun if it has its slot in all of these ledgers; say whether it does.

        ``what``: digest and attempt. A decision is older than its write: the planner may have given the slot to another
        node meanwhile, or be about to.
        """
        slots = [slot for ledger in ledgers if (slot := ledger.entries.get(uid)) is not None]
        if not slots or len(slots) < len(ledgers) or any((slot.digest, slot.attempt) != what for slot in slots):
            return False
        self.slots[uid], self.jobs[uid] = slots[-1], job
        return True

    def end(self, uid: str) -> bool:
        """Count a node as begun no more: its Job is seen, or is not there, and what the watch shows is all there is.

        Returns whether it was: then its slot may be another's again.
        """
        self.jobs.pop(uid, None)
        return self.slots.pop(uid, None) is not None

    def entries(self) -> Mapping[str, Entry]:
        """Return the slots, as a plan takes them."""
        return dict(self.slots)
