"""The rows of ``trellis check``.

Pure. In: raw pods, responses of ``/readyz``, streams of the bus. Out: rows. Called by ``check``.
Invariant: a requested service without a pod is a problem, and so is a pod that does not report ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trellis import names
from trellis.kube.resources import Manifest
from trellis_cli.status.row import Part

SELECTOR: Final = f"{names.LABEL_PART_OF}={names.PART_OF}"
_COMPONENT: Final = "app.kubernetes.io/component"
_HEALTH: Final = "health"
_OVER: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod of a service. ``url``: of its ``/readyz``, "" before it runs; ``waits``: why it is not running."""

    component: str
    name: str
    url: str
    waits: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of a pod: ``problem`` "" if it is ready."""

    pod: PodView
    problem: str


def view_pods(pods: Iterable[Manifest]) -> list[PodView]:
    """Return the pods that serve ``/readyz``, by name, without terminating and finished pods."""
    found = []
    for pod in pods:
        metadata, status = pod["metadata"], pod.get("status") or {}
        port = _health_port(pod)
        if metadata.get("deletionTimestamp") or status.get("phase") in _OVER or port is None:
            continue
        address = str(status.get("podIP") or "")
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{port}/readyz" if address else ""
        component = (metadata.get("labels") or {}).get(_COMPONENT, "")
        found.append(PodView(component, metadata["name"], url, _process_state(status)))
    return sorted(found, key=lambda item: item.name)


def parts_of(wanted: Sequence[str], answers: Sequence[Answer]) -> list[Part]:
    """Return one row per component: the requested ones, else those with pods."""
    components = wanted or sorted({answer.pod.component for answer in answers})
    if not components:
        return [Part("services", "none", "no service has a pod: check TRELLIS_NAMESPACE")]
    return [_part(name, [answer for answer in answers if answer.pod.component == name]) for name in components]


def reasons_of(body: Any, status: int) -> str:  # noqa: ANN401 - JSON from outside
    """Return why a process is not ready, from its response to ``/readyz``; "" if it is."""
    services = body.get("services") if isinstance(body, Mapping) else None
    found = []
    for name, readiness in sorted(services.items()) if isinstance(services, Mapping) else ():
        if isinstance(readiness, Mapping) and readiness.get("reasons"):
            found.append(f"{name}: {'; '.join(map(str, readiness['reasons']))}")
    if found:
        return "; ".join(found)
    return "" if status == 200 else f"/readyz returns {status}"


def _part(component: str, answers: Sequence[Answer]) -> Part:
    unhealthy = [answer for answer in answers if answer.problem]
    problem = "; ".join(f"pod {item.pod.name}: {item.problem}" for item in unhealthy)
    if not answers:
        problem = "no pod: see its Deployment"
    data = {"name": component, "pods": len(answers), "ready": len(answers) - len(unhealthy)}
    return Part(component, f"{data['ready']} of {len(answers)} pods ready", problem, data)


def _health_port(pod: Manifest) -> int | None:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == _HEALTH:
                return int(port["containerPort"])
    return None


def _process_state(status: Mapping[str, Any]) -> str:
    """Return why the process of a pod is not running, from the pod status; "" if unknown."""
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return ": ".join(filter(None, (waiting["reason"], waiting.get("message"))))
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
    return ""
