"""Restarts the container runtime and waits until it runs with its new configuration.

In: the node's restart command and the required handlers. Out: nothing, or an error. Called by ``apply``.
Source: an installer that ends while containerd is down loses its exit code, so the wait is part of the restart.
Invariant: it returns only when the runtime has answered a call; if the runtime reports its handlers, when they agree.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from node_installer.domain.actions import RestartRuntime
from node_installer.domain.errors import InstallError
from node_installer.domain.inspection import Inspection, Live
from node_installer.node import cri
from node_installer.node.commands import Run
from node_installer.timings import RuntimeTimings
from trellis.installer_api.result import FailureReason


class Runtime(Protocol):
    """The container runtime of one node."""

    def live(self) -> Live | None:
        """Return the running runtime, None without an answer."""

    def restart(self, found: Inspection, wanted: RestartRuntime) -> None:
        """Restart it once, and return when it runs as required.

        Raises:
            InstallError: ``RestartFailed`` or ``RuntimeStartFailed``.
        """

    def stop(self, sandboxes: Sequence[str]) -> None:
        """Stop the containers of pods, as far as possible within a limited time."""


@dataclass(frozen=True, slots=True)
class NodeRuntime:
    """The runtime of a real node: commands, and the CRI socket below its root. ``seconds``: timeout of its start."""

    socket: Path
    run: Run
    seconds: float
    timings: RuntimeTimings = RuntimeTimings()

    def live(self) -> Live | None:
        """Return the runtime that answers on the socket, None without an answer in time."""
        return cri.ask(self.socket, self.timings.probe)

    def restart(self, found: Inspection, wanted: RestartRuntime) -> None:
        """Restart the runtime as defined by the node's preset."""
        deadline = time.monotonic() + self.seconds
        # Without a visible change (options of a handler), its own reload cannot be detected.
        visible = not agrees(self.live(), wanted.present, wanted.absent)
        soon = min(deadline, time.monotonic() + self.timings.reload)
        if found.preset.reloads_itself and visible and self._awaited(wanted, soon):
            return
        if found.restart is None:
            raise InstallError(FailureReason.RESTART_FAILED, "no way to restart the container runtime was found")
        answer = self.run(found.restart.command, max(1.0, deadline - time.monotonic()))
        command = " ".join(found.restart.command)
        if not answer.ok and not self._awaited(wanted, time.monotonic() + self.timings.probe):
            message = f"`{command}` ended with {answer.code}: {' '.join(answer.output.split()) or 'no output'}"
            raise InstallError(FailureReason.RESTART_FAILED, message)
        if not self._awaited(wanted, deadline):
            message = f"after `{command}` {self._state(wanted)} within {self.seconds:g} s"
            raise InstallError(FailureReason.RUNTIME_START_FAILED, message)

    def stop(self, sandboxes: Sequence[str]) -> None:
        """Stop sandboxes, with one timeout for all; an unknown sandbox, or one that cannot be stopped, stays."""
        deadline = time.monotonic() + self.timings.stop
        for sandbox in sandboxes:
            cri.stop(self.socket, sandbox, deadline)

    def _awaited(self, wanted: RestartRuntime, deadline: float) -> bool:
        while True:
            if agrees(self.live(), wanted.present, wanted.absent):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(self.timings.poll)

    def _state(self, wanted: RestartRuntime) -> str:
        live = self.live()
        if live is None:
            return "containerd did not answer"
        missing = sorted(name for name, path in wanted.present.items() if (live.runtimes or {}).get(name) != path)
        return (
            f"containerd {live.version} answered, but without the handler {', '.join(missing)} (does it read another "
            "file?)"
            if missing
            else f"containerd {live.version} still had {', '.join(sorted(wanted.absent))}"
        )


def agrees(live: Live | None, present: Mapping[str, str], absent: frozenset[str]) -> bool:
    """Return whether the runtime runs with these handlers and without those.

    A runtime that does not report its handlers only has to answer.
    """
    if live is None:
        return False
    if live.runtimes is None:
        return True
    return all(live.runtimes.get(name) == path for name, path in present.items()) and not absent & set(live.runtimes)
