"""Plans an installation on this node: without actions if the node already has the target state.

Pure: an inspection, a specification and downloads in; actions with reasons out. Called by ``operations``.
Order, and why: the state first (no file of Trellis is ever unrecorded), then the shims, tested, then the configuration
that names them, then one restart for all of it, then the removal of adopted files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from node_installer.domain import cgroups, owners, takeover, target
from node_installer.domain.actions import (
    Action,
    MakeDirectory,
    Plan,
    ProbeShim,
    PutShim,
    Reason,
    RemoveFile,
    WriteFile,
)
from node_installer.domain.edits import Adoption, Edits, edits_for, find_adoptions
from node_installer.domain.errors import InstallError
from node_installer.domain.inspection import Inspection, Layout
from node_installer.domain.presets import Preset
from node_installer.domain.restarts import restart_for, without_refusal
from node_installer.domain.state import ShimState, State, write_state
from trellis.installer_api.result import FailureReason, ShimResult
from trellis.installer_api.spec import InstallSpec, WantedShim

_SPARE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Staged:
    """A shim that was downloaded and checked, outside of the node. Without a path: a dry run, without a download."""

    sha256: str
    size: int
    path: Path | None = None


def check_supported(preset: Preset) -> None:
    """Reject a distribution on which nothing can be installed.

    Raises:
        InstallError: ``UnsupportedNode``, with what to do instead.
    """
    if preset.advice:
        raise InstallError(FailureReason.UNSUPPORTED_NODE, f"{preset.name}: {preset.advice}")


def check_node(found: Inspection) -> None:
    """Reject a node on which nothing can be installed.

    Raises:
        InstallError: ``UnsupportedNode`` or ``ReadOnlyTarget``, with what to do instead.
    """
    check_supported(found.preset)
    if found.base_problem:
        raise InstallError(FailureReason.READ_ONLY_TARGET, found.base_problem)
    if found.restart is None:
        message = (
            f"{found.preset.name}: no unit or init script of the container runtime was found, so it could not be "
            "restarted; is the whole root of the node mounted?"
        )
        raise InstallError(FailureReason.UNSUPPORTED_NODE, message)


def needed(found: Inspection, spec: InstallSpec) -> list[tuple[WantedShim, Reason]]:
    """Return the shims to download, with the reasons."""
    result: list[tuple[WantedShim, Reason]] = []
    for wanted in spec.shims:
        known = found.state.shims.get(wanted.handler)
        present = found.binaries.get(Layout(found.base).shim(wanted.handler))
        if known is None or present is None:
            result.append((wanted, Reason.SHIM_MISSING))
        elif known.digest != wanted.digest:
            result.append((wanted, Reason.SHIM_OUTDATED))
        elif known.sha256 != present:
            result.append((wanted, Reason.SHIM_DAMAGED))
    return result


def check_owners(found: Inspection, spec: InstallSpec) -> None:
    """Reject a handler that another owner requires in another version.

    Raises:
        InstallError: ``HandlerConflict``.
    """
    for wanted in spec.shims:
        known = found.state.shims.get(wanted.handler)
        others = owners.others(known, wanted) if known else ()
        if known and others and known.digest != wanted.digest:
            message = (
                f"handler {wanted.handler!r} belongs to {', '.join(others)} in version {known.digest}, and "
                f"{wanted.owner} requires version {wanted.digest}: a handler has one shim, so set another handler "
                "for one of them"
            )
            shim = ShimResult(wanted.handler, wanted.digest, problem=message)
            raise InstallError(FailureReason.HANDLER_CONFLICT, message, (shim,))


def plan_install(found: Inspection, spec: InstallSpec, staged: Mapping[str, Staged]) -> Plan:
    """Return the actions after which the node has every requested shim, besides those of further owners.

    Args:
        found: the node.
        spec: the requested shims.
        staged: downloads by handler, all that :func:`needed` names.

    Raises:
        InstallError: the node or a handler cannot be used; nothing was changed.
    """
    found = without_refusal(found, spec)
    check_node(found)
    check_owners(found, spec)
    _check_space(found, staged)
    aim = target.choose(found)
    adoptions = find_adoptions(found, aim, [wanted.handler for wanted in spec.shims])
    shims = {**found.state.shims, **{wanted.handler: _shim(found, wanted, staged, adoptions) for wanted in spec.shims}}
    edits = edits_for(found, aim, shims, adoptions)
    directories = _directories(found, aim.path if aim.path in edits.files else "")
    retiring = {adoption.binary for adoption in adoptions if adoption.binary in found.binaries}
    state = State(
        shims,
        edits.configs,
        _made(found, directories),
        tuple(sorted({*found.state.retired, *retiring})),
    )
    layout = Layout(found.base)
    early, late, kept = takeover.after(found, aim, adoptions, state.retired)
    final = replace(state, retired=kept)
    actions: list[Action] = [*directories]
    if state != found.state or found.exposed:
        actions.append(write_state(layout.state, state, "target state of this node"))
    actions += _put_shims(found, spec, staged)
    actions += [*_write_files(edits, spec), *early]
    restart = restart_for(found, edits, shims, frozenset())
    actions += [restart] if restart else []
    actions += late
    if final != state:
        actions.append(write_state(layout.state, final, "adopted files are removed"))
    results = tuple(
        ShimResult(wanted.handler, wanted.digest, shims[wanted.handler].sha256)
        for wanted in spec.shims
        if wanted.handler in shims
    )
    warnings = (*_warnings(found, adoptions), *cgroups.warnings(found, shims, spec.shims))
    return Plan(tuple(actions), takeover.empty_folders(adoptions, kept), results, warnings)


def _shim(found: Inspection, wanted: WantedShim, staged: Mapping[str, Staged], adoptions: list[Adoption]) -> ShimState:
    known = found.state.shims.get(wanted.handler)
    fetched = staged.get(wanted.handler)
    return ShimState(
        name=wanted.name,
        path=Layout(found.base).shim(wanted.handler),
        sha256=fetched.sha256 if fetched else known.sha256 if known else "",
        digest=wanted.digest,
        owners=owners.owners_with(known, wanted),
        options=cgroups.options_of(found, wanted, known),
        adopted=next((adoption.leftover.name for adoption in adoptions if adoption.handler == wanted.handler), "")
        or (known.adopted if known else ""),
    )


def _check_space(found: Inspection, staged: Mapping[str, Staged]) -> None:
    wanted = sum(item.size for item in staged.values())
    if staged and wanted + _SPARE_BYTES > found.free_bytes:
        message = (
            f"{found.base} has {found.free_bytes >> 20} MiB free and the shims need {wanted + _SPARE_BYTES >> 20} MiB: "
            "free some space on the node and retry"
        )
        raise InstallError(FailureReason.NO_SPACE, message)


def _directories(found: Inspection, config_path: str) -> list[MakeDirectory]:
    layout = Layout(found.base)
    folders = [layout.bin, layout.own]
    if config_path:
        folders.append(config_path.rpartition("/")[0])
    missing: list[str] = []
    for folder in folders:
        parts = folder.split("/")
        for depth in range(2, len(parts) + 1):
            path = "/".join(parts[:depth])
            if path not in found.directories and path not in missing:
                missing.append(path)
    return [MakeDirectory(path, Reason.DIRECTORY_MISSING, f"{path} does not exist") for path in missing]


def _made(found: Inspection, directories: list[MakeDirectory]) -> tuple[str, ...]:
    """Return the directories of Trellis, also those of a run that was killed before it wrote the state."""
    former = found.journal.directories if found.journal else ()
    made = {*found.state.directories, *former, *(action.path for action in directories)}
    if found.state.empty:
        made |= {*found.own_directories}
    return tuple(sorted(made - {Layout(found.base).backups}))


def _put_shims(found: Inspection, spec: InstallSpec, staged: Mapping[str, Staged]) -> list[Action]:
    actions: list[Action] = []
    for wanted, reason in needed(found, spec):
        fetched = staged[wanted.handler]
        path = Layout(found.base).shim(wanted.handler)
        if found.binaries.get(path) != fetched.sha256 or not fetched.sha256:
            source = wanted.source_for(found.arch)
            message = {
                Reason.SHIM_MISSING: f"the node has no shim for handler {wanted.handler!r}",
                Reason.SHIM_OUTDATED: f"version {wanted.digest} is required",
                Reason.SHIM_DAMAGED: f"{path} was changed after its installation",
            }[reason]
            location = source.location if source else ""
            actions.append(PutShim(path, wanted.handler, fetched.path, reason, message, location))
        # Also for an unchanged file: a run may have been killed between its installation and its test.
        text = f"the shim of {wanted.handler!r} must run here before it is added to containerd's configuration"
        actions.append(ProbeShim(path, wanted.handler, Reason.VERIFICATION_PENDING, text))
    return actions


def _write_files(edits: Edits, spec: InstallSpec) -> list[Action]:
    names = ", ".join(wanted.handler for wanted in spec.shims)
    actions: list[Action] = []
    for path, content in sorted(edits.files.items()):
        if content is None:
            actions.append(RemoveFile(path, Reason.HANDLER_UNWANTED, "it has only entries of Trellis"))
        else:
            reason = Reason.HANDLER_MISSING if edits.meaning_changes else Reason.CONFIG_CHANGED
            actions.append(WriteFile(path, content, reason, f"containerd must have the handler of {names}"))
    return actions


def _warnings(found: Inspection, adoptions: list[Adoption]) -> tuple[str, ...]:
    texts = [f"handler {item.handler!r} of {item.leftover.name} is now managed by Trellis" for item in adoptions]
    if found.preset.lost_at_boot:
        texts.append(f"{found.preset.name} re-creates {found.config} at each boot: provision the node after a boot")
    return tuple(texts)
