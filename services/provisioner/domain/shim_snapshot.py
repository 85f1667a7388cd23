"""The snapshot for a decision about one Shim: the Shim, its nodes, its RuntimeClass, its status.

Pure. Filled by ``shim_gather``; read by ``shim_status`` and ``shim_decide``.
Invariant: the snapshot contains the complete input of a decision about a Shim.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from provisioner.domain.shim_nodes import ShimNodes
from trellis.provisioning.other_controllers import Controller
from trellis.provisioning.placement import Placement
from trellis.provisioning.revisions import Manifest, Revision
from trellis.provisioning.shim_status import Status
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import NodeView
from trellis.provisioning.workload_state import WorkloadHalt


@dataclass(frozen=True, slots=True)
class RuntimeClassView:
    """The RuntimeClass with the name in the Shim's spec; ``owner``: UID of its first owner, "" if none.

    ``owner_name``: name of that Shim, "" if the owner is of another kind.
    """

    name: str
    uid: str
    resource_version: str = field(compare=False)
    handler: str
    overhead: tuple[tuple[str, str], ...]
    placement: Placement
    owner: str
    owner_name: str = ""
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Input of a decision about one Shim.

    ``nodes``: those that it is for or on. ``holders``: while it is deleted, the nodes that still have it.
    ``in_progress``: nodes whose Jobs change it. ``failing``: nodes on which attempts at their present target failed
    because of it, with the error; its removal counts. ``now``: RFC 3339, whole seconds. ``revisions``: the stored
    versions, None if the newest is known to be ``version``, that of the spec.
    """

    shim: ShimView
    status: Status
    runtime_class: RuntimeClassView | None
    nodes: ShimNodes
    holders: tuple[NodeView, ...]
    in_progress: tuple[NodeView, ...]
    failing: tuple[tuple[NodeView, str], ...]
    halted: bool
    patience_over: bool
    now: str
    version: Manifest = field(default_factory=dict, hash=False)
    revisions: tuple[Revision, ...] | None = None
    in_use_revisions: frozenset[str] = frozenset()
    """Names of the revisions whose versions nodes have."""
    other: Controller | None = None
    """The controller of another owner that works on it."""
    in_use: tuple[tuple[NodeView, str], ...] = ()
    """Nodes from which it cannot be removed, with the reason."""
    paused_nodes: tuple[NodeView, ...] = ()
    """Nodes that still have its label though it is being deleted: it is part of a mass deletion."""
    class_rival: str = ""
    """The Shim that gets a RuntimeClass without owner, as it is older; "" if this one gets it."""
    class_refused: str = ""
    """Error of the API server for its RuntimeClass, "" if it was accepted."""

    refused: tuple[tuple[NodeView, str, str], ...] = ()
    """Nodes that it is for and on which the API server refuses a request; with the reason and the error."""
    waits: WorkloadHalt | None = None
    """The pods for which further nodes wait, None if there are none."""
    halt: WorkloadHalt | None = None
    """The pods for which the rollout is halted, None if it is not."""
    drain_blocked: tuple[tuple[NodeView, str], ...] = ()
    """Nodes whose pods cannot be evicted, with the reason."""
    ledger_refused: str = ""
    """Why no node is started: the ledger cannot be read or written."""
