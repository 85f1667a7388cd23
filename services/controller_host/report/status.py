"""The status of a WasmController, and the urgency of its writes.

Pure: state of a controller in, fields of the status out. Called by ``reporting``. Invariants: Ready, Reconciling and
Stalled follow kstatus; counters alone cause at most one write a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from controller_host.scheduler.hosted import Fault, Trouble
from controller_host.state.progress import KnownModule
from trellis.crds.conditions import Health, State, Verdict, make_condition, summary

FIGURES: Final = (
    "failing",
    "residentBytes",
    "snapshotBytes",
    "wakes",
    "wakeP99",
    "calls",
    "traps",
    "lastFault",
    "state",
)
"""Fields that change with each call."""
_KEPT: Final = ("wakeP99", "lastFault")
_LONGEST: Final = 4096
_GRANTED: Final = Trouble("Granted", "all watches are permitted")
FETCHING: Final = Trouble("Fetching", "the module is being fetched and verified")
PENDING: Final = Trouble("Pending", "the controller has not been evaluated yet")

Status = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Before:
    """Counters from before this process, which adds its own to them.

    ``snapshot_bytes``: the written size, kept because file systems report slightly different sizes later, which would
    cause ten thousand writes.
    """

    wakes: int = 0
    calls: int = 0
    traps: int = 0
    snapshot_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """State of a controller. ``refused``, ``stopped``, ``not_watched``: reason if not accepted, not run, not called.

    ``ready``: it is prepared; ``failing``: number of keys whose last call failed; ``wake_p99``: seconds.
    """

    generation: int
    state: str
    ready: bool
    refused: Trouble | None = None
    stopped: Trouble | None = None
    not_watched: Trouble | None = None
    paused: bool = False
    fetching: bool = False
    module: KnownModule | None = None
    fault: Fault | None = None
    failing: int = 0
    resident_bytes: int = 0
    snapshot_bytes: int = 0
    wakes: int = 0
    wake_p99: float | None = None
    calls: int = 0
    traps: int = 0


def status_of(seen: Seen, former: Status, now: str) -> Status:
    """Return the whole status; ``former``: the current one, ``now``: in RFC 3339."""
    # A restart of this process does not change a controller: keep these values until there are new ones.
    status: Status = {name: former[name] for name in _KEPT if name in former}
    status |= {
        "observedGeneration": seen.generation,
        "conditions": [
            make_condition(verdict, former.get("conditions") or (), seen.generation, now)
            for verdict in _conditions(seen)
        ],
        "state": seen.state,
        "failing": seen.failing,
        "residentBytes": seen.resident_bytes,
        "snapshotBytes": seen.snapshot_bytes,
        "wakes": seen.wakes,
        "calls": seen.calls,
        "traps": seen.traps,
    }
    if seen.wake_p99 is not None:
        status["wakeP99"] = f"{seen.wake_p99 * 1000:.2f}ms"
    if seen.module is not None:
        module = {"sha256": seen.module.sha256, "abi": seen.module.abi, "bytes": seen.module.bytes}
        status["module"] = {name: value for name, value in module.items() if value is not None}
    if (fault := seen.fault) is not None:
        status["lastFault"] = {"kind": fault.kind, "message": fault.message[:_LONGEST], "time": fault.time}
    return status


def before_of(former: Status) -> Before:
    """Return the counters of the current status."""
    counted = (former.get(name) for name in ("wakes", "calls", "traps", "snapshotBytes"))
    return Before(*(value if isinstance(value, int) else 0 for value in counted))


def patch_of(former: Status, status: Status) -> Status:
    """Return the merge patch from ``former`` to ``status``, {} if they are equal."""
    patch = {name: value for name, value in status.items() if former.get(name) != value}
    if isinstance(patch.get("module"), dict):  # a merge patch keeps omitted fields
        patch["module"] = dict.fromkeys(former.get("module") or (), None) | patch["module"]
    return patch | {name: None for name in former if name not in status}


def is_urgent(patch: Status) -> bool:
    """Return whether a patch contains more than counters."""
    return any(name not in FIGURES for name in patch)


def _conditions(seen: Seen) -> tuple[Verdict, ...]:
    own = {
        "Accepted": _accepted(seen),
        "WatchesGranted": ("True", _GRANTED) if seen.not_watched is None else ("False", seen.not_watched),
    }
    verdicts = (Verdict(kind, status, trouble.reason, trouble.message) for kind, (status, trouble) in own.items())
    return (*summary(_health(seen)), *verdicts)


def _accepted(seen: Seen) -> tuple[str, Trouble]:
    if seen.refused is not None:
        return "False", seen.refused
    if seen.module is None and seen.paused:
        return "Unknown", Trouble("Paused", "the module is not evaluated while spec.paused is true")
    if seen.module is None or (seen.fetching and not seen.ready):  # a known module belongs to the previous spec
        return "Unknown", FETCHING if seen.fetching else PENDING
    abi = seen.module.abi
    version = "reports its ABI when it starts," if abi is None else f"has ABI {abi}"
    return "True", Trouble("Accepted", f"the module {version} and can run")


def _health(seen: Seen) -> Health:
    if seen.refused is not None:
        return _because(State.STALLED, seen.refused)
    if seen.paused:
        return Health(State.SUSPENDED, "Paused", "the controller is not called while spec.paused is true")
    if (trouble := seen.stopped or seen.not_watched) is not None:
        return _because(State.RECONCILING, trouble)
    if not seen.ready:
        preparing = Trouble(PENDING.reason, "the controller is being prepared")
        return _because(State.RECONCILING, FETCHING if seen.fetching else preparing)
    # Without the number, which changes with each call: a changed condition is written immediately.
    failing = "; calls for some objects fail (status.failing, status.lastFault)" if seen.failing else ""
    return Health(State.READY, "Running", f"the controller is called on changes of its watches{failing}")


def _because(state: State, trouble: Trouble) -> Health:
    return Health(state, trouble.reason, trouble.message)
