"""The changes of ``trellis rollout pause|resume|undo``: one patch of a Shim.

In: a connection, settings, the name of a Shim. Out: a line that describes the change. Called by the commands.
Invariant: every write has the uid and the resourceVersion of the read Shim; a Shim that changed since is read and
evaluated again, so that no concurrent change is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict
from trellis.kube.preconditions import only_if
from trellis.kube.resources import SHIMS
from trellis.provisioning.revisions import Revision, former_of, restoring, version_of
from trellis.read_model.tables.rollout import halt_for_pods, is_halted, last_failure
from trellis_cli.common.errors import CommandError
from trellis_cli.common.settings import ClientSettings
from trellis_cli.rollout.read import Found, Reader

_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a Shim: JSON patch operations (empty if nothing changes), and the text of the result."""

    ops: tuple[dict[str, Any], ...]
    message: str

    def document(self, shim: str) -> dict[str, object]:
        """Return the change for JSON."""
        return {"shim": shim, "changed": bool(self.ops), "message": self.message}


async def change(kube: Kube, settings: ClientSettings, name: str, wanted: Callable[[Found], Change]) -> Change:
    """Apply a change to a Shim, and return it.

    Raises:
        CommandError: the Shim does not exist or is being deleted, or the change is impossible.
        KubeError: the server does not respond, or rejects the change.
    """
    for left in reversed(range(_TRIES)):
        found = await Reader(kube, settings, name).read()
        if found.snapshot.shim.deleting:
            raise CommandError(f'Shim "{name}" is being deleted; see `trellis rollout status {name}`')
        done = wanted(found)
        if not done.ops:
            return done
        metadata = found.manifest["metadata"]
        ops = [*only_if(metadata["uid"], metadata["resourceVersion"]), *done.ops]
        try:
            await kube.json_patch(SHIMS, name, ops, field_manager=names.FIELD_MANAGER_COMMAND_LINE)
        except Conflict:
            if not left:
                raise
        else:
            return done
    raise AssertionError("the last attempt returns or raises")


def pause(found: Found) -> Change:
    """Return the change that pauses a rollout."""
    name = found.snapshot.shim.name
    if found.snapshot.shim.paused:
        return Change((), f"Shim {name} is already paused; to resume: trellis rollout resume {name}")
    return Change(
        ({"op": "add", "path": "/spec/paused", "value": True},),
        f"Shim {name} paused: nodes in progress are finished, no further node is started; "
        f"to resume: trellis rollout resume {name}",
    )


def resume(found: Found) -> Change:
    """Return the change that resumes a paused, halted or failing rollout and acknowledges its failures.

    Later failures count. Failed nodes are retried at once, also if the container runtime rejected the Shim (ADR 24).

    Raises:
        CommandError: the state of the rollout cannot be read.
    """
    snapshot = found.snapshot
    if not snapshot.ledger_known:
        raise CommandError(f'cannot resume the rollout of Shim "{snapshot.shim.name}": {"; ".join(snapshot.notes)}')
    ops: list[dict[str, Any]] = []
    effects = []
    if snapshot.shim.paused:
        ops.append({"op": "add", "path": "/spec/paused", "value": False})
        effects.append("no longer paused")
    last, halted = last_failure(snapshot), is_halted(snapshot)
    # Ending a pause does not acknowledge failures: they can still exist.
    if last is not None and last > snapshot.shim.acknowledged and (halted or not snapshot.shim.paused):
        ops += _acknowledge(found.manifest, last)
        further = ", further nodes are started" if halted else ""
        effects.append(f"failures acknowledged: failed nodes are retried at once{further}")
    name = snapshot.shim.name
    if not ops:
        return Change((), f"Shim {name} is not paused or halted, and no node fails: nothing to resume")
    return Change(
        tuple(ops), f"Shim {name} resumed: {' and '.join(effects)}; see: trellis rollout status {name} --watch"
    )


def _acknowledge(manifest: dict[str, Any], until: int) -> list[dict[str, Any]]:
    annotation = {names.ANNOTATION_ACKNOWLEDGED: str(until)}
    if "annotations" not in manifest["metadata"]:
        return [{"op": "add", "path": "/metadata/annotations", "value": annotation}]
    key = names.ANNOTATION_ACKNOWLEDGED.replace("~", "~0").replace("/", "~1")
    return [{"op": "add", "path": f"/metadata/annotations/{key}", "value": str(until)}]


def undo(to_revision: int | None) -> Callable[[Found], Change]:
    """Return the function that restores a revision, or the version before the current one."""

    def wanted(found: Found) -> Change:
        revision = _target(found, to_revision)
        name, ops = found.snapshot.shim.name, tuple(restoring(revision, found.manifest))
        if revision.version == version_of(found.manifest):
            return Change((), f"Shim {name} already has the version of revision {revision.number}")
        paused = (
            f"; the rollout is paused; to start: trellis rollout resume {name}" if found.snapshot.shim.paused else ""
        )
        result = f"Shim {name} rolled back to revision {revision.number} of {revision.created}"
        pods = (
            "; pods that failed keep the program of the version that started them: the status names those to delete"
            if halt_for_pods(found.snapshot) is not None
            else ""
        )
        return Change(ops, f"{result}{paused or f'; see: trellis rollout status {name} --watch'}{pods}")

    return wanted


def _target(found: Found, number: int | None) -> Revision:
    name, revisions = found.snapshot.shim.name, found.snapshot.revisions
    if not revisions and found.snapshot.notes:
        raise CommandError(f'cannot undo the rollout of Shim "{name}": {"; ".join(found.snapshot.notes)}')
    known = ", ".join(str(revision.number) for revision in revisions)
    if number is None:
        former = former_of(revisions, version_of(found.manifest))
        if former is None:
            raise CommandError(f'Shim "{name}" has no previous revision')
        return former
    for revision in revisions:
        if revision.number == number:
            return revision
    raise CommandError(f'revision {number} of Shim "{name}" not found; known revisions: {known or "none"}')
