"""Reads the data of ``trellis rollout`` from the cluster.

In: a connection, settings, the name of a Shim. Out: snapshots for ``rollout_model``. Writes nothing.
Invariant: a missing Shim is a CommandError with the names of the existing ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import CONFIGMAPS, CONTROLLER_REVISIONS, NODES, SHIMS
from trellis.provisioning.ledger import Ledger, read_ledger
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.revisions import Revision, label_selector, revisions_of, same_as, version_of
from trellis.provisioning.shim_status import read_status
from trellis.provisioning.shims import view_shim
from trellis.provisioning.views import NodeView
from trellis.read_model.reading.served import list_served
from trellis.read_model.tables.rollout import RolloutSnapshot
from trellis_cli.common.errors import CommandError, describe_error
from trellis_cli.common.settings import ClientSettings

Manifest = dict[str, Any]

_NODES_SECONDS: Final = 10.0
"""Nodes are re-read after this time, or when the Shim or the ledger changes: a large cluster has megabytes of them."""
_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Found:
    """A Shim as read from the API server, and the snapshot for its rollout."""

    manifest: Manifest
    snapshot: RolloutSnapshot


class Reader:
    """Reads the snapshot of one Shim repeatedly; nodes and revisions only if they can have changed."""

    def __init__(self, kube: Kube, settings: ClientSettings, name: str) -> None:
        self._kube = kube
        self._settings = settings
        self._name = name
        self._versions: tuple[object, ...] = ()
        self._nodes: tuple[NodeView, ...] = ()
        self._nodes_at = 0.0
        self._revisions: tuple[Revision, ...] = ()
        self._revision_note = ""

    async def read(self) -> Found:
        """Return the Shim and its snapshot.

        Raises:
            CommandError: the Shim does not exist.
            NotServedError: the CRD of Shims exists and is not served.
            KubeError: the Shims or the nodes cannot be read, or the server is unreachable.
        """
        shims = await self._shims()
        manifest = self._chosen(shims)
        ledger, version, note = await self._ledger()
        versions = (manifest["metadata"]["resourceVersion"], version)
        if versions != self._versions or time.monotonic() - self._nodes_at > _NODES_SECONDS:
            self._nodes = tuple(map(view_node, (await self._kube.list(NODES)).items))
            await self._read_revisions(str(manifest["metadata"]["uid"]))
            self._versions, self._nodes_at = versions, time.monotonic()
        snapshot = RolloutSnapshot(
            shim=view_shim(manifest),
            status=read_status(manifest),
            shims=tuple(map(view_shim, shims)),
            nodes=self._nodes,
            ledger=ledger,
            revisions=self._revisions,
            current=same_as(self._revisions, version_of(manifest)),
            ledger_known=not note,
            notes=tuple(filter(None, (note, self._revision_note))),
        )
        return Found(manifest, snapshot)

    async def _shims(self) -> list[Manifest]:
        found = await list_served(self._kube, SHIMS)
        if found is None:
            raise CommandError(
                'the server does not have the resource type "shims"; check that Trellis is installed in the cluster'
            )
        return found

    def _chosen(self, shims: list[Manifest]) -> Manifest:
        for manifest in shims:
            if manifest["metadata"]["name"] == self._name:
                return manifest
        known = sorted(manifest["metadata"]["name"] for manifest in shims)
        more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
        there = f"the cluster has: {', '.join(known[:_NAMED])}{more}" if known else "the cluster has no Shims"
        raise CommandError(f'Shim "{self._name}" not found; {there}')

    async def _ledger(self) -> tuple[Ledger, str, str]:
        """Return the ledger, its resourceVersion and a note on data that is unknown without it."""
        try:
            manifest = await self._kube.get(CONFIGMAPS, names.LEDGER, self._settings.namespace)
        except NotFound:
            return Ledger({}), "", ""  # no rollout has started
        except Forbidden as error:
            return Ledger({}), "", f"nodes in progress and halts unknown: {describe_error(error)}"
        return read_ledger(manifest), str(manifest["metadata"]["resourceVersion"]), ""

    async def _read_revisions(self, uid: str) -> None:
        try:
            listing = await self._kube.list(
                CONTROLLER_REVISIONS, self._settings.namespace, label_selector=label_selector(self._name)
            )
        except Forbidden as error:
            self._revision_note = f"revisions unknown: {describe_error(error)}"
        else:
            self._revisions, self._revision_note = revisions_of(uid, listing.items), ""
