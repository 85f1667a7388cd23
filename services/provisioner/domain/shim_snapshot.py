"""What is known of one Shim when it is decided on: the Shim, its nodes, its RuntimeClass, its status.

Pure. Filled by ``shim_gather``; read by ``shim_status`` (what the status says) and ``shim_decide`` (what to do).
Invariant: all that a decision about a Shim may depend on is in its snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.installer_api.spec import ShimWish
from trellis.provisioning.other_controllers import Controller
from trellis.provisioning.revisions import Manifest, Revision
from trellis.provisioning.shim_status import Status
from trellis.provisioning.shims import Refusal, ShimView
from trellis.provisioning.views import NodeView


@dataclass(frozen=True, slots=True)
class RuntimeClassView:
    """The RuntimeClass of the Shim's name for it; ``owner``: uid of the Shim that owns it, "" if none does.

    ``owner_name``: name of that Shim, "" if the owner is of another kind.
    """

    name: str
    uid: str
    resource_version: str
    handler: str
    overhead: tuple[tuple[str, str], ...]
    selector: tuple[tuple[str, str], ...]
    owner: str
    owner_name: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a decision about one Shim may depend on.

    ``wishes``: for each node that it is for, what is to be installed there or why nothing is. ``holders``: nodes on
    which it is installed. ``in_work``: nodes whose work changes it. ``failing``: nodes on which the last attempt at
    what they are to have now failed because of it; its removal counts. ``now``: RFC 3339, whole seconds.
    ``revisions``: the versions that are kept, None if the newest is known to be ``version``, that of the spec.
    """

    shim: ShimView
    status: Status
    runtime_class: RuntimeClassView | None
    wishes: tuple[tuple[NodeView, ShimWish | Refusal], ...]
    holders: tuple[NodeView, ...]
    in_work: tuple[NodeView, ...]
    failing: tuple[NodeView, ...]
    halted: bool
    patience_over: bool
    now: str
    version: Manifest = field(default_factory=dict, hash=False)
    revisions: tuple[Revision, ...] | None = None
    in_use_revisions: frozenset[str] = frozenset()
    """Names of the revisions whose versions nodes have."""
    other: Controller | None = None
    """The controller of somebody else that works on it."""
    rivals: tuple[str, ...] = ()
    """Shims that have its handler on nodes that it is for."""
    in_use: tuple[tuple[NodeView, str], ...] = ()
    """Nodes that it cannot leave, and what keeps it there."""
    held: tuple[NodeView, ...] = ()
    """Nodes that still bear its label though it is being deleted: it is part of a mass deletion."""
    class_refused: str = ""
    """What the API server answered to its RuntimeClass, "" if it took it."""

    refused: tuple[tuple[NodeView, str, str], ...] = ()
    """Nodes that it is for and on which the API server refuses something; with the reason and its words."""
    ledger_refused: str = ""
    """Why no node is begun: the ledger cannot be read or written."""

    @property
    def skipped(self) -> tuple[NodeView, ...]:
        """Nodes that it is for and that no installer is to run on; they count nowhere."""
        return tuple(node for node, _ in self.wishes if node.skip is not None)

    @property
    def leaving(self) -> tuple[NodeView, ...]:
        """Nodes that have the Shim, are not to have it any more, and can be worked on."""
        staying = {node.uid for node, _ in self.wishes}
        return tuple(node for node in self.holders if node.uid not in staying and node.skip is None)
