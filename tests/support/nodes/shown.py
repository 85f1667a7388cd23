"""Shows to provisioner's cache what its informers, the API server and the planner would."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from provisioner.cache import Cache
from trellis.kube.informer import Change, ChangeKind
from trellis.provisioning.ledger import Ledger, make_ledger
from trellis.provisioning.views import JobView, NodeView


def show_nodes(cache: Cache, nodes: Iterable[NodeView]) -> None:
    """Let these be all nodes there are."""
    known = cast("dict[str, NodeView]", cache.nodes)
    former = set(known)
    known.clear()
    known.update({node.name: node for node in nodes})
    for name in former | set(known):
        cache.fleet.take(name)


def show_job(cache: Cache, job: JobView) -> None:
    """Let there be this Job, too."""
    cache.job_changed(Change(ChangeKind.ADDED, job.name, None, job))


def show_ledger(cache: Cache, ledger: Ledger) -> None:
    """Let this be the ledger, as if no write of it were there yet."""
    cache.ledger_accepted(make_ledger("trellis-system", ledger, None))
