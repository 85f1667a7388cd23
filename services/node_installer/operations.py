"""The four operations, from a node to a result.

In: settings and the node's parts. Out: an :class:`InstallResult` in every case. Called by ``command_line``, and by
tests. Invariant: an error before the first effect leaves the node unchanged; a result claims only verified state.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from node_installer.apply import Executor, RolledBackError
from node_installer.domain import report
from node_installer.domain.actions import Plan
from node_installer.domain.errors import InstallError
from node_installer.domain.inspection import Inspection
from node_installer.domain.plan import check_node, check_supported, plan_install
from node_installer.domain.presets import Preset
from node_installer.domain.removal import plan_uninstall
from node_installer.domain.unwanted import Unwanted
from node_installer.fetch.fetching import fetched, unfetched
from node_installer.gather import find_preset, inspect
from node_installer.node.commands import Run, on_node
from node_installer.node.disk import Disk
from node_installer.node.disk_errors import as_install_error
from node_installer.node.effects import Effects
from node_installer.node.runtime import NodeRuntime, Runtime
from node_installer.session import Session
from node_installer.settings import Settings
from node_installer.verify import check_runs, verify
from trellis.installer_api.result import FailureReason, InstallResult, Outcome, ShimResult
from trellis.installer_api.spec import InstallSpec, SpecError, parse_spec

_LOCK_FOLDERS: Final = ("/run", "/tmp")  # noqa: S108 (the node's, for a lock without content)


@dataclass(frozen=True, slots=True)
class Node:
    """One node and the ways to act on it."""

    disk: Disk
    preset: Preset
    runtime: Runtime
    run: Run


def real_node(session: Session) -> Node:
    """Return the node below ``--node-root``.

    Raises:
        InstallError: it does not exist, or has no supported container runtime.
    """
    settings, timings = session.settings, session.timings.runtime
    root = settings.node_root
    if not root.is_dir():
        message = f"{root} does not exist: mount the node's root there (hostPath /), or name it with --node-root"
        raise InstallError(FailureReason.RUNTIME_NOT_FOUND, message)
    disk = Disk(root)
    preset = find_preset(disk, settings.preset)
    run = on_node(root)
    return Node(disk, preset, NodeRuntime(disk.real(preset.socket), run, settings.restart_seconds, timings), run)


def perform(session: Session, make_node: Callable[[Session], Node] = real_node) -> InstallResult:
    """Run the operation of the settings. Errors of the node or its environment are results, not exceptions."""
    started = time.monotonic()
    settings = session.settings
    spec: InstallSpec | None = None
    try:
        with session.tracer.span(f"installer {settings.operation}", **{"trellis.node_root": str(settings.node_root)}):
            spec = _spec(settings)
            result = _dispatch(session, make_node(session), spec)
    except RolledBackError as error:
        result = _failed(Outcome.ROLLED_BACK, error, settings.operation, spec)
    except InstallError as error:
        result = _failed(Outcome.FAILED, error, settings.operation, spec)
    except OSError as error:
        disk = as_install_error(error)
        result = InstallResult(settings.operation, Outcome.FAILED, disk.reason, disk.message)
    except SpecError as error:
        result = InstallResult(settings.operation, Outcome.FAILED, FailureReason.INVALID_SPEC, str(error))
    return replace(result, seconds=time.monotonic() - started)


def _failed(outcome: Outcome, error: InstallError, operation: str, spec: InstallSpec | None) -> InstallResult:
    """Return the result of a failed run; each shim that caused the failure has its requested version."""
    versions = {wanted.handler: wanted.digest for wanted in spec.shims} if spec else {}
    shims = tuple(replace(shim, digest=shim.digest or versions.get(shim.handler, "")) for shim in error.shims)
    restarted = outcome is Outcome.ROLLED_BACK
    return InstallResult(operation, outcome, error.reason, error.message, restarted=restarted, shims=shims)


def _spec(settings: Settings) -> InstallSpec | None:
    removal = settings.operation == "uninstall"
    if settings.spec_text is None or (removal and settings.everything):
        return None
    return parse_spec(settings.spec_text, removal=removal)


def _dispatch(session: Session, node: Node, spec: InstallSpec | None) -> InstallResult:
    settings = session.settings
    match settings.operation:
        case "install":
            assert spec is not None
            changed = _install(session, node, spec)
        case "uninstall":
            changed = _uninstall(session, node, spec)
        case "verify":
            changed = _verify(session, node, spec)
        case _:
            found = _inspect(session, node)
            session.report_progress(report.inspection_text(found))
            changed = InstallResult(settings.operation, Outcome.INSPECTED, shims=report.known_shims(found))
    return replace(changed, preset=node.preset.name)


def _install(session: Session, node: Node, spec: InstallSpec) -> InstallResult:
    settings = session.settings
    if settings.dry_run:
        found = _inspect(session, node)
        return _planned(session, found, plan_install(found, spec, unfetched(found, spec)))
    check_supported(node.preset)
    results: tuple[ShimResult, ...] = ()

    def check() -> None:
        nonlocal results
        results = _verified(session, node, spec)
        _check_verified(results)

    with _locked(session, node.disk):
        executor = _executor(session, node)
        found = _whole(session, node, executor)
        # The plan is checked before anything is downloaded.
        plan_install(found, spec, unfetched(found, spec))
        with tempfile.TemporaryDirectory(prefix="trellis-") as work:
            staged = fetched(session, found, spec, Path(work))
            plan = plan_install(found, spec, staged)
            restarted = executor.run(found, plan, settings.operation, check)
    outcome = Outcome.UNCHANGED if plan.empty and found.journal is None else Outcome.INSTALLED
    names = ", ".join(shim.handler for shim in results) or "no shim"
    message = f"{names}: nothing to do" if outcome is Outcome.UNCHANGED else f"{names}: installed and verified"
    return InstallResult(
        settings.operation, outcome, None, message, restarted=restarted, shims=results, warnings=plan.warnings
    )


def _uninstall(session: Session, node: Node, spec: InstallSpec | None) -> InstallResult:
    settings = session.settings
    unwanted = Unwanted(spec, settings.force)
    if settings.dry_run:
        found = _inspect(session, node)
        return _planned(session, found, plan_uninstall(found, unwanted))
    with _locked(session, node.disk):
        executor = _executor(session, node)
        found = _whole(session, node, executor)
        plan = plan_uninstall(found, unwanted)
        if not (plan.empty and found.journal is None):
            check_node(found)
        restarted = executor.run(found, plan, settings.operation)
    names = ", ".join(shim.handler for shim in plan.shims) or "no handler"
    outcome = Outcome.UNCHANGED if plan.empty and found.journal is None else Outcome.REMOVED
    ending = executor.effects.ending
    message = "; ".join(filter(None, (f"{names}: removed", report.ended_processes_text(ending.ended))))
    if outcome is Outcome.UNCHANGED:
        message = "; ".join(plan.warnings) or "nothing of Trellis is on this node"
    return InstallResult(
        settings.operation,
        outcome,
        None,
        message,
        restarted=restarted,
        shims=plan.shims,
        warnings=(*plan.warnings, *ending.left),
        ended=ending.ended,
    )


def _verify(session: Session, node: Node, spec: InstallSpec | None) -> InstallResult:
    results = _verified(session, node, spec)
    _check_verified(results)
    names = ", ".join(shim.handler for shim in results) or "no shim is installed"
    return InstallResult("verify", Outcome.VERIFIED, None, names, shims=results)


def _check_verified(results: tuple[ShimResult, ...]) -> None:
    broken = [shim for shim in results if not shim.verified]
    if broken:
        message = "; ".join(f"{shim.handler}: {shim.problem}" for shim in broken)
        raise InstallError(FailureReason.VERIFICATION_FAILED, message, results)


def _whole(session: Session, node: Node, executor: Executor) -> Inspection:
    """Return the state of the node after the unfinished work of a killed run is completed.

    Raises:
        RolledBackError: that work was a rollback.
    """
    found = _inspect(session, node)
    executor.finish_rollback(found)
    return _inspect(session, node) if executor.tidy(found) else found


def _inspect(session: Session, node: Node) -> Inspection:
    with session.tracer.span("Inspect", **{"trellis.preset": node.preset.name}):
        return inspect(node.disk, node.preset, node.runtime, node.run)


def _executor(session: Session, node: Node) -> Executor:
    @contextlib.contextmanager
    def step(name: str, line: str) -> Iterator[None]:
        session.report_progress(line)
        with session.tracer.span(name):
            yield

    effects = Effects(node.disk, node.runtime, lambda path: check_runs(node.run, path), session.timings.ending)
    return Executor(effects, step, session.interruption)


def _verified(session: Session, node: Node, spec: InstallSpec | None) -> tuple[ShimResult, ...]:
    with session.tracer.span("Verify"):
        return verify(_inspect(session, node), spec, node.run)


def _planned(session: Session, found: Inspection, plan: Plan) -> InstallResult:
    session.report_progress(report.plan_diff(found, plan))
    message = "nothing to do" if plan.empty else f"{len(plan.actions) + len(plan.last)} actions, none executed"
    return InstallResult(
        session.settings.operation, Outcome.PLANNED, None, message, shims=plan.shims, warnings=plan.warnings
    )


@contextlib.contextmanager
def _locked(session: Session, disk: Disk) -> Iterator[None]:
    """Hold the node's lock for the run.

    Raises:
        InstallError: ``Locked``: another installer still runs after the timeout.
    """
    folder = next((folder for folder in _LOCK_FOLDERS if disk.exists(folder)), "")
    deadline = time.monotonic() + session.settings.lock_seconds
    while True:
        with disk.locked(f"{folder}/trellis-node-installer.lock") as acquired:
            if acquired:
                yield
                return
        if time.monotonic() >= deadline:
            message = (
                f"another installer has been running on this node for {session.settings.lock_seconds:g} s: "
                "retry when it has ended"
            )
            raise InstallError(FailureReason.LOCKED, message)
        time.sleep(session.timings.lock)
