"""Selects the handlers that an uninstallation removes from this node, and those that stay although it names them.

Pure: an inspection and a specification in, the handlers to remove out. Called by ``removal``.
Invariants: a handler with a further owner stays; a handler of a user or an unknown installer is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from node_installer.domain import owners, target
from node_installer.domain.edits import Adoption, find_adoptions
from node_installer.domain.errors import InstallError
from node_installer.domain.inspection import Inspection
from node_installer.domain.state import ShimState
from trellis.installer_api.result import FailureReason, ShimResult
from trellis.installer_api.spec import InstallSpec, WantedShim


@dataclass(frozen=True, slots=True)
class Unwanted:
    """Shims to remove: those of a specification, for its owners; or everything of Trellis (None).

    ``force``: even if they run; their processes end. A specification also refers to handlers of another known
    installer: a migration adopts them unchanged.
    """

    spec: InstallSpec | None
    force: bool = False


@dataclass(frozen=True, slots=True)
class Removal:
    """Handlers to remove and to keep: ``shims``: the state afterwards; ``adoptions``: other installers' handlers."""

    shims: Mapping[str, ShimState]
    removed: Mapping[str, ShimState]
    adoptions: tuple[Adoption, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def handlers(self) -> tuple[str, ...]:
        """The handlers that the runtime must not have afterwards."""
        return tuple(sorted({*self.removed, *(adoption.handler for adoption in self.adoptions)}))

    def results(self, found: Inspection) -> tuple[ShimResult, ...]:
        """Return the former shim of each handler to remove."""
        former = {
            item.handler: ShimResult(item.handler, sha256=found.binaries.get(item.binary, ""))
            for item in self.adoptions
        }
        ours = {handler: ShimResult(handler, shim.digest, shim.sha256) for handler, shim in self.removed.items()}
        return tuple((former | ours)[handler] for handler in self.handlers)


def handlers_to_remove(found: Inspection, aim: target.Target, unwanted: Unwanted) -> Removal:
    """Return the handlers to remove.

    Raises:
        InstallError: ``ConfigUnreadable`` or ``ShimsInUse``.
    """
    present = found.state.shims
    if unwanted.spec is None:
        result = Removal({}, present)
    else:
        shims, notes = dict(present), []
        adoptions: list[Adoption] = []
        for wanted in unwanted.spec.shims:
            meant = [handler for handler, shim in present.items() if owners.is_meant(handler, shim, wanted)]
            for handler in meant:
                notes += _leave(shims, handler, wanted)
            if not meant:
                adopted, note = _unknown(found, aim, wanted)
                adoptions += [item for item in adopted if item not in adoptions]
                notes += [note]
        removed = {handler: shim for handler, shim in present.items() if handler not in shims}
        result = Removal(shims, removed, tuple(adoptions), tuple(notes))
    if not unwanted.force:
        _check_use(found, result)
    return result


def _leave(shims: dict[str, ShimState], handler: str, wanted: WantedShim) -> list[str]:
    """Remove one owner of a handler, and with the last one the handler; return notes for the user."""
    known = shims.get(handler)
    rest = owners.others(known, wanted) if known else ()
    if known is None or not rest:
        shims.pop(handler, None)
        return []
    shims[handler] = replace(known, owners=rest)
    return [f"handler {handler!r} stays: {', '.join(rest)} still requires it"]


def _unknown(found: Inspection, aim: target.Target, wanted: WantedShim) -> tuple[list[Adoption], str]:
    """Return another installer's handlers for a request without a handler in the state, and a note for the user."""
    handler = wanted.handler or wanted.name
    known = found.state.shims.get(handler)
    if known is not None:
        return [], f"handler {handler!r} stays: it belongs to {', '.join(known.owners)}, not to {wanted.owner}"
    try:
        adoptions = find_adoptions(found, aim, [handler])
    except InstallError as error:
        if error.reason is not FailureReason.HANDLER_CONFLICT:
            raise
        return [], f"handler {handler!r} stays: it is not managed by Trellis on this node"
    if adoptions:
        return adoptions, f"handler {handler!r} was installed by {adoptions[0].leftover.name}"
    return [], f"shim {wanted.name!r} (owner {wanted.owner}) is not installed on this node"


def _check_use(found: Inspection, result: Removal) -> None:
    paths = [shim.path for shim in result.removed.values()] + [item.binary for item in result.adoptions]
    paths += found.state.retired if not result.shims else ()
    used = [f"{path} ({', '.join(map(str, found.running[path]))})" for path in paths if path in found.running]
    if used:
        message = (
            f"shims still run pods on this node: {'; '.join(used)} (process ids): delete the pods that use these "
            "handlers first, or uninstall with --force, which ends these processes"
        )
        raise InstallError(FailureReason.SHIMS_IN_USE, message)
