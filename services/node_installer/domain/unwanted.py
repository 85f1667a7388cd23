"""What an uninstallation is to take away from this node, and what stays although it was named.

Pure: an inspection and a wish in, the handlers that go out. Called by ``removal``.
Invariants: a handler that someone else wants stays; one that nobody we know has defined is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from node_installer.domain import owners, target
from node_installer.domain.edits import Adoption, adoptions
from node_installer.domain.errors import InstallError
from node_installer.domain.inspection import Inspection
from node_installer.domain.state import ShimState
from trellis.installer_api.result import FailureReason, ShimResult
from trellis.installer_api.spec import InstallSpec, WantedShim


@dataclass(frozen=True, slots=True)
class Unwanted:
    """What is to go: what a wish names, for its owners; or everything of Trellis (None).

    ``force``: although it runs, and what runs it ends. A wish also means the handler of another installer whom we know:
    a migration makes it ours without touching it.
    """

    spec: InstallSpec | None
    force: bool = False


@dataclass(frozen=True, slots=True)
class Going:
    """What goes, and what stays: ``shims`` are what the state has afterwards, ``taken`` other installers' handlers."""

    shims: Mapping[str, ShimState]
    removed: Mapping[str, ShimState]
    taken: tuple[Adoption, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def handlers(self) -> tuple[str, ...]:
        """The handlers that the runtime must not have afterwards."""
        return tuple(sorted({*self.removed, *(adoption.handler for adoption in self.taken)}))

    def results(self, found: Inspection) -> tuple[ShimResult, ...]:
        """Return what was there of each handler that goes."""
        former = {
            item.handler: ShimResult(item.handler, sha256=found.binaries.get(item.binary, "")) for item in self.taken
        }
        ours = {handler: ShimResult(handler, shim.digest, shim.sha256) for handler, shim in self.removed.items()}
        return tuple((former | ours)[handler] for handler in self.handlers)


def going(found: Inspection, aim: target.Target, unwanted: Unwanted) -> Going:
    """Return what is to go.

    Raises:
        InstallError: ``ConfigUnreadable`` or ``ShimsInUse``.
    """
    present = found.state.shims
    if unwanted.spec is None:
        result = Going({}, present)
    else:
        shims, notes = dict(present), []
        taken: list[Adoption] = []
        for wish in unwanted.spec.shims:
            meant = [handler for handler, shim in present.items() if owners.is_meant(handler, shim, wish)]
            for handler in meant:
                notes += _leave(shims, handler, wish)
            if not meant:
                adopted, note = _unknown(found, aim, wish)
                taken += [item for item in adopted if item not in taken]
                notes += [note]
        removed = {handler: shim for handler, shim in present.items() if handler not in shims}
        result = Going(shims, removed, tuple(taken), tuple(notes))
    if not unwanted.force:
        _check_use(found, result)
    return result


def _leave(shims: dict[str, ShimState], handler: str, wish: WantedShim) -> list[str]:
    """Take one owner of a handler away, and with the last one the handler; return what is to be said."""
    known = shims.get(handler)
    rest = owners.others(known, wish) if known else ()
    if known is None or not rest:
        shims.pop(handler, None)
        return []
    shims[handler] = replace(known, owners=rest)
    return [f"handler {handler!r} stays: {', '.join(rest)} still wants it"]


def _unknown(found: Inspection, aim: target.Target, wish: WantedShim) -> tuple[list[Adoption], str]:
    """Return what another installer has of a wish that the state knows nothing of, and what is to be said."""
    handler = wish.handler or wish.name
    known = found.state.shims.get(handler)
    if known is not None:
        return [], f"handler {handler!r} stays: it belongs to {', '.join(known.owners)}, not to {wish.owner}"
    try:
        taken = adoptions(found, aim, [handler])
    except InstallError as error:
        if error.reason is not FailureReason.HANDLER_CONFLICT:
            raise
        return [], f"handler {handler!r} stays: another than Trellis defined it on this node"
    if taken:
        return taken, f"handler {handler!r} was {taken[0].leftover.name}'s"
    return [], f"nothing is known here of shim {wish.name!r} (owner {wish.owner})"


def _check_use(found: Inspection, result: Going) -> None:
    paths = [shim.path for shim in result.removed.values()] + [item.binary for item in result.taken]
    paths += found.state.retired if not result.shims else ()
    used = [f"{path} ({', '.join(map(str, found.running[path]))})" for path in paths if path in found.running]
    if used:
        message = (
            f"shims still run pods on this node: {'; '.join(used)} (process ids): delete the pods that use these "
            "handlers first, or uninstall with --force, which ends these processes"
        )
        raise InstallError(FailureReason.SHIMS_IN_USE, message)
