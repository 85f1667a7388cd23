"""Why a controller in Wasm is, or is not, called: its module, its rights, what ended its last calls.

Pure. In: the WasmController. Out: the page, and the cause alone. Called by ``explain`` and by ``status``.
Source of the conditions: ``controller_host.report.status``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trellis.read_model.explain.page import Explanation, Line, Rank, condition, words
from trellis.read_model.explain.subject import Beside, Subject, cause_of
from trellis.read_model.tables.controllers import HOST, ControllerRow, controller_row

Manifest = Mapping[str, Any]

SUBJECT: Final = Subject("WasmController", "controller", "trellis controllers")
_LIMITS: Final[Mapping[str, str]] = {
    "CpuExceeded": "raise its limit of fuel in spec.limits, or have it do less in one call",
    "TimeExceeded": "raise its limit of time in spec.limits, or have it do less in one call",
    "MemoryExceeded": "raise its limit of memory in spec.limits, or have it keep less",
}
_MODULE: Final = "mend the module, or take its former version: spec.module"
_CONDITIONS: Final = ("Accepted", "WatchesGranted")


def explain_controller(found: Manifest, beside: Beside) -> Explanation:
    """Return the page of a controller."""
    return SUBJECT.page(found, _chain(found), beside)


def controller_cause(controller: Manifest) -> Line | None:
    """Return why a controller is not well, None if it is: what its page says, but for the service."""
    return cause_of(_chain(controller))


def _chain(controller: Manifest) -> Iterator[Line]:
    metadata, status, spec = controller["metadata"], controller.get("status") or {}, controller.get("spec") or {}
    row = controller_row(controller)
    account = spec.get("serviceAccountName") or "default"
    yield Line("controller", f"{row.key}, acts as ServiceAccount {metadata['namespace']}/{account}", well=True)
    if not status.get("conditions"):
        yield Line("looked at", "never: nobody has looked at it yet", False, f"`trellis run {HOST}` starts the service")
        return
    for kind in _CONDITIONS:
        said = condition(status, kind)
        if said:
            # Unknown is while it is looked at: then Ready says so.
            well = None if said.get("status") == "Unknown" else said.get("status") == "True"
            yield Line(kind, words(said), well, rank=Rank.CAUSE)
    yield from _fault(row, status)
    if row.state == "Paused":
        yield Line("state", "Paused: it is not called while spec.paused is true")
        return
    ready = condition(status, "Ready")
    # Where conditions above are not met, this one says the same.
    yield Line("state", f"{row.state or 'unknown'}; {words(ready)}", well=row.ready)


def _fault(row: ControllerRow, status: Manifest) -> Iterator[Line]:
    """Yield what ended its last call that was ended: a trouble while it fails still, else of the past."""
    fault, failing = row.fault, int(status.get("failing") or 0)
    if not fault:
        return
    kind, message = str(fault.get("kind") or ""), str(fault.get("message") or "")
    reason = str(condition(status, "Ready").get("reason") or "")
    if failing or (not row.ready and reason == kind):
        on = f", and it fails on {failing} object{'s' if failing > 1 else ''} now" if failing else ""
        traps = row.figures.get("traps", 0)
        text = f"its last call was ended, {kind}: {message} (at {fault.get('time')}; {traps} traps{on})"
        yield Line("last fault", text, False, _LIMITS.get(kind, _MODULE), Rank.CAUSE)
    else:
        yield Line("last fault", f"{kind}: {message} at {fault.get('time')}; nothing fails now")
