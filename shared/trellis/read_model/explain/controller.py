"""State of a WasmController, and its cause: its module, its permissions, the faults of its last calls.

Pure. In: the WasmController. Out: health, the page, and the cause alone. Called by ``explain``, ``status`` and
``entities``. Source of the conditions: ``controller_host.report.status``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trellis.read_model.explain.page import HEALTHY, Explanation, Line, Rank, condition, reason_and_message
from trellis.read_model.explain.subject import Beside, Subject, cause_of, looked_at, verdict_of
from trellis.read_model.health import Health, Verdict
from trellis.read_model.tables.controllers import HOST, ControllerRow, controller_row

Manifest = Mapping[str, Any]

SUBJECT: Final = Subject("WasmController", "controller", "trellis controllers")
_LIMITS: Final[Mapping[str, str]] = {
    "CpuExceeded": "increase the fuel limit in spec.limits, or reduce the work of one call",
    "TimeExceeded": "increase the time limit in spec.limits, or reduce the work of one call",
    "MemoryExceeded": "increase the memory limit in spec.limits, or reduce the memory of the module",
}
_MODULE: Final = "fix the module, or set spec.module to the previous version"
PAUSED: Final = "Paused"
_CONDITIONS: Final = ("Accepted", "WatchesGranted")


def explain_controller(found: Manifest, beside: Beside) -> Explanation:
    """Return the page of a controller."""
    return SUBJECT.page(found, _chain(found), beside, controller_health(found))


def controller_cause(controller: Manifest) -> Line | None:
    """Return the cause of a controller that is not healthy, None if it is: as its page has it, without the service."""
    return cause_of(_chain(controller))


def controller_health(controller: Manifest) -> Verdict:
    """Return the health of a controller."""
    state = controller_row(controller).state
    cause = controller_cause(controller)
    if state == PAUSED and (cause is None or cause.rank is not Rank.CAUSE):
        return Verdict(Health.SUSPENDED, PAUSED, "spec.paused is true")
    healthy = str(condition(controller.get("status") or {}, "Ready").get("reason") or HEALTHY)
    if cause is not None and cause.rank is Rank.SERVICE:
        return Verdict(Health.HEALTHY, healthy, cause.shown)
    return verdict_of(cause, healthy)


def _chain(controller: Manifest) -> Iterator[Line]:
    metadata, status, spec = controller["metadata"], controller.get("status") or {}, controller.get("spec") or {}
    row = controller_row(controller)
    account = spec.get("serviceAccountName") or "default"
    yield Line("controller", f"{row.key}, acts as ServiceAccount {metadata['namespace']}/{account}", ok=True)
    if not status.get("conditions"):
        yield looked_at(controller, HOST)
        return
    for kind in _CONDITIONS:
        found = condition(status, kind)
        if found:
            # Unknown only while it is being reconciled: then Ready is Unknown, too.
            ok = None if found.get("status") == "Unknown" else found.get("status") == "True"
            yield Line(kind, reason_and_message(found), ok, rank=Rank.CAUSE, reason=str(found.get("reason") or ""))
    yield from _fault(row, status)
    if row.state == PAUSED:
        yield Line("state", "Paused: it is not called while spec.paused is true")
        return
    ready = condition(status, "Ready")
    # If conditions above are not met, this one repeats them.
    reason = str(ready.get("reason") or "")
    yield Line("state", f"{row.state or 'unknown'}; {reason_and_message(ready)}", ok=row.ready, reason=reason)


def _fault(row: ControllerRow, status: Manifest) -> Iterator[Line]:
    """Yield the fault of its last call that failed: the cause if it is not ready, information if no call fails.

    A controller that is ready stays Healthy while calls for single objects fail, as its condition Ready: the calls are
    retried.
    """
    fault, failing = row.fault, int(status.get("failing") or 0)
    if not fault:
        return
    kind, message = str(fault.get("kind") or ""), str(fault.get("message") or "")
    reason = str(condition(status, "Ready").get("reason") or "")
    if failing or (not row.ready and reason == kind):
        on = f", fails on {failing} object{'s' if failing > 1 else ''} now" if failing else ""
        traps = row.figures.get("traps", 0)
        text = f"its last call failed, {kind}: {message} (at {fault.get('time')}; {traps} traps{on})"
        rank = Rank.SERVICE if row.ready else Rank.CAUSE
        yield Line("last fault", text, False, _LIMITS.get(kind, _MODULE), rank, kind)
    else:
        yield Line("last fault", f"{kind}: {message} at {fault.get('time')}; no call fails now")
