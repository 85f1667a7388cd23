"""What was proved on a node and is not so any more: its kubelet no longer lists the runtime handler.

Pure. Called by ``decide``. Why it happens: distributions that make /etc again at each boot (GKE's COS, Bottlerocket's
kin) lose containerd's configuration, and people edit it. What was never proved cannot be lost.
Invariants: silence is no proof (a node that lists no handlers at all says nothing); nothing is concluded while a Job is
at work, because its restart of containerd makes handlers come and go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trellis.provisioning.views import JobState, JobView, NodeView, proved_of


def vanished(
    node: NodeView, job: JobView | None, wanted: Collection[str], handlers: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the Shims that the node is to have and is marked with, and whose handler it no longer lists; by name.

    ``handlers``: by Shim name, of the Shims that are known. ``job``: the newest of the node.
    """
    if not node.handlers or (job is not None and (job.deleting or job.state is not JobState.FAILED)):
        return ()
    marked = sorted(name for name in proved_of(node.installed) if name in wanted and name in handlers)
    return tuple(name for name in marked if handlers[name] not in node.handlers)
