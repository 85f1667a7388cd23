"""Output for users: a plan as a diff, the state of a node, the result of a run.

Pure: values in, text out. Called by ``operations``, ``apply`` and ``command_line``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Final

from node_installer.domain import target
from node_installer.domain.actions import (
    Action,
    EndProcesses,
    MakeDirectory,
    Plan,
    ProbeShim,
    PutShim,
    RemoveDirectory,
    RemoveFile,
    RestartRuntime,
    WriteFile,
)
from node_installer.domain.inspection import Inspection, Layout
from node_installer.domain.presets import leftover_of
from trellis.installer_api.result import EndedProcess, InstallResult, Outcome, ShimResult

_SHOWN: Final = 10


def action_line(action: Action) -> str:
    """Return one line: the effect of the action and its reason."""
    return f"{_what(action)} ({action.reason}: {action.message})"


def plan_diff(found: Inspection, plan: Plan) -> str:
    """Return the effects of a plan: configuration as a unified diff, the rest a line each."""
    if plan.empty:
        return "nothing to do"
    lines: list[str] = []
    for action in (*plan.actions, *plan.last):
        lines.append(f"# {_what(action)}: {action.message}")
        if isinstance(action, WriteFile) and action.path != Layout(found.base).state:
            lines += _diff(action.path, found.files.get(action.path), action.content)
        if isinstance(action, RemoveFile) and action.path in found.files:
            lines += _diff(action.path, found.files[action.path], None)
    return "\n".join(lines)


def inspection_text(found: Inspection) -> str:
    """Return the state of a node, for users."""
    lines = [f"distribution  {found.preset.name}", f"machine       {found.arch}"]
    if found.preset.advice:
        lines.append(f"refused       {found.preset.advice}")
        return "\n".join(lines)
    aim = target.choose(found)
    live = found.live
    lines += [
        f"configuration {found.config} (entries go into {aim.path}, version {aim.version})",
        f"shims         {Layout(found.base).bin}" + (f" ({found.base_problem})" if found.base_problem else ""),
        f"restart       {' '.join(found.restart.command) if found.restart else 'no command was found'}",
        f"runtime       {f'containerd {live.version}' if live else 'does not answer'}",
    ]
    if live and live.runtimes is not None:
        lines.append(f"handlers      {', '.join(sorted(live.runtimes))}")
    for handler, shim in sorted(found.state.shims.items()):
        owners = ", ".join(shim.owners)
        lines.append(f"installed     {handler}: {shim.path}, version {shim.digest}, for {owners}")
    for path, numbers in sorted(found.running.items()):
        lines.append(f"running       {path}: {len(numbers)} processes")
    for path in sorted(found.binaries):
        leftover = leftover_of(path)
        if leftover is not None:
            lines.append(f"found         {path}, of {leftover.name}: adopted when its handler is installed")
    if found.journal is not None:
        lines.append(f"unfinished    a run of {found.journal.operation} was killed while {found.journal.phase}")
    if found.refusal is not None:
        lines.append(
            "not retried   a configuration with which the runtime did not start within the last hour: "
            f"{found.refusal.message}"
        )
    if found.preset.lost_at_boot:
        lines.append("note          the configuration is re-created at each boot")
    return "\n".join(lines)


def known_shims(found: Inspection) -> tuple[ShimResult, ...]:
    """Return each shim in the node's state; nothing is verified here."""
    return tuple(ShimResult(handler, shim.digest, shim.sha256) for handler, shim in sorted(found.state.shims.items()))


def summary_of(result: InstallResult) -> str:
    """Return the summary of a run: its warnings and its result."""
    lines = [f"note: {text}" for text in result.warnings]
    if result.ok:
        restart = "; the container runtime was restarted" if result.restarted else ""
        message = f": {result.message}" if result.message else ""
        lines.append(f"{result.outcome}{message}{restart} ({result.seconds:.1f} s)")
    else:
        verb = "rolled back" if result.outcome is Outcome.ROLLED_BACK else "failed"
        lines.append(f"{result.operation} {verb} ({result.reason}): {result.message}")
    return "\n".join(lines)


def ended_processes_text(ended: Sequence[EndedProcess]) -> str:
    """Return the processes that were ended, "" if there are none."""
    if not ended:
        return ""
    shown = [f"{item.name} (pid {item.pid}{', killed' if item.killed else ''})" for item in ended[:_SHOWN]]
    more = f" and {len(ended) - _SHOWN} more" if len(ended) > _SHOWN else ""
    return f"ended {', '.join(shown)}{more}"


def _what(action: Action) -> str:
    match action:
        case MakeDirectory():
            return f"create directory {action.path}"
        case PutShim():
            return f"install {action.path}" + (f" from {action.source}" if action.source else "")
        case ProbeShim():
            return f"test {action.path}"
        case WriteFile():
            return f"write {action.path}"
        case RemoveFile():
            return f"remove {action.path}"
        case RemoveDirectory():
            return f"remove directory {action.path}"
        case EndProcesses():
            return _ends(action)
        case RestartRuntime():
            return "restart the container runtime"


def _ends(action: EndProcesses) -> str:
    shown = ", ".join(f"{process.name} (pid {process.pid})" for process in action.processes)
    how = "by SIGTERM and SIGKILL" if action.signals else "by the container runtime"
    return f"end {how} the processes of {', '.join(action.paths)}" + (f": {shown}" if shown else "")


def _diff(path: str, before: bytes | None, after: bytes | None) -> Iterator[str]:
    def lines(content: bytes | None) -> list[str]:
        return (content or b"").decode(errors="replace").splitlines()

    return difflib.unified_diff(
        lines(before),
        lines(after),
        "/dev/null" if before is None else f"a{path}",
        "/dev/null" if after is None else f"b{path}",
        lineterm="",
    )
