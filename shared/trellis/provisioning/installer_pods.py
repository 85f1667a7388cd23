"""Reads the state of an installer pod, and rejections of its creation by the API server.

Pure. In: a pod, or an Event of the Job controller, as the API server returns it. Out: the reason of waiting, the exit,
the last message; the reason why there is no pod. Called by ``provisioner`` and by ``trellis explain``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Manifest = Mapping[str, Any]

SUSPENDED: Final = "Job is suspended (spec.suspend), by a user, Kueue, or an admission webhook or policy"
"""Reason why a suspended Job has no pod; the API server reports none."""
_RANDOM: Final = r"-[a-z0-9]{5}(?![a-z0-9])"
"""Suffix that the API server appends to the ``generateName`` of a pod of the Job controller."""
STARTING: Final = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True, slots=True)
class InstallerState:
    """The state of the newest pod of a Job: reason of waiting, exit, last log lines. Empty strings if unknown."""

    waiting: str = ""
    terminated: str = ""
    log_tail: str = ""


def installer_state(pod: Manifest) -> InstallerState:
    """Return the state of the installer container in a pod: reason of waiting, exit, last log lines.

    With ``FallbackToLogsOnError`` in the Job, the termination message of a container is the end of its log, at most
    2 KiB.
    """
    status: Mapping[str, Any] = pod.get("status") or {}
    for container in (*_unfinished_init_containers(status), *(status.get("containerStatuses") or ())):
        state: Mapping[str, Any] = container.get("state") or {}
        last: Mapping[str, Any] = container.get("lastState") or {}
        waits: Mapping[str, Any] = state.get("waiting") or {}
        ended: Mapping[str, Any] = state.get("terminated") or last.get("terminated") or {}
        waiting = "" if waits.get("reason") in STARTING else reason_and_message(waits)
        terminated = f"exit code {ended.get('exitCode')} ({ended.get('reason', 'Unknown')})" if ended else ""
        return InstallerState(waiting, terminated, str(ended.get("message") or ""))
    return InstallerState(terminated=reason_and_message(status))


def refused_pod(event: Manifest) -> str:
    """Return the message with which the API server rejects the pod of a Job; the pod has the name of its Job."""
    job = str((event.get("involvedObject") or {}).get("name") or "")
    message = str(event.get("message") or "no reason given")
    return re.sub(f"{re.escape(job)}{_RANDOM}", job, message) if job else message


def _unfinished_init_containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the init containers that have not succeeded, which the installer container waits for."""
    before: list[Mapping[str, Any]] = list(status.get("initContainerStatuses") or ())
    return [item for item in before if ((item.get("state") or {}).get("terminated") or {}).get("exitCode") != 0]


def reason_and_message(state: Mapping[str, Any]) -> str:
    """Return ``reason: message`` of a state or an Event, without missing parts."""
    return ": ".join(str(state[part]) for part in ("reason", "message") if state.get(part))
