"""Detects verified state that was lost: the kubelet no longer lists the runtime handler.

Pure. Called by ``decide``. Causes: distributions that re-create /etc at each boot (GKE's COS, Bottlerocket) lose the
configuration of containerd, and users edit it. Invariants: a node that lists no handlers at all proves nothing; nothing
is concluded while a Job runs, because its restart of containerd makes handlers disappear temporarily.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trellis.provisioning.views import JobState, JobView, NodeView, proved_of


def vanished(
    node: NodeView, job: JobView | None, wanted: Collection[str], handlers: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the names of target Shims that the node is marked with but whose handlers it no longer lists.

    ``handlers``: of the known Shims, by name. ``job``: the newest of the node.
    """
    if not node.handlers or (job is not None and (job.deleting or job.state is not JobState.FAILED)):
        return ()
    marked = sorted(name for name in proved_of(node.installed) if name in wanted and name in handlers)
    return tuple(name for name in marked if handlers[name] not in node.handlers)
