"""The status of an Application: the report of wadm, and conditions in the form that tools read.

Pure. In: an object, the decision, the status in wadm. Out: a status, and the new Events. Called by ``reconciler``.
Invariants: the output is deterministic, so that nothing is written twice; no time in it changes by itself; while the
state is unknown, the last report remains, and ``Synced`` is Unknown.
Source: kstatus reads Ready, Reconciling and Stalled; wadm 0.21 has the six phases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from application_manager.domain.actions import Decision, Reason, Record
from application_manager.domain.sides import Absence, Base, Win
from application_manager.domain.snapshot import Snapshot
from application_manager.domain.status_limits import scalers_of, versions_of
from application_manager.domain.views import ApplicationView
from trellis.crds.conditions import Health, State, Verdict, make_condition, summary
from trellis.lattice.domain.group_views import lattice_name
from trellis.lattice.domain.replies import Refusal, Scaler, Status
from trellis.lattice.domain.store import StoredModel

Json = dict[str, Any]

PHASES: Final = {
    "deployed": "Deployed",
    "reconciling": "Reconciling",
    "failed": "Failed",
    "undeployed": "Undeployed",
    "waiting": "Waiting",
    "unhealthy": "Unhealthy",
    # Written by wadm before 0.14 to its stream; it remains there until the next change.
    "ready": "Deployed",
    "compensating": "Reconciling",
}
NAMED: Final = 20
"""Maximum number of fields in a message; the number of further fields is appended."""
_WINS: Final = 4
_PASSING: Final = {Refusal.FAILED, Refusal.VERSION_EXISTS, Refusal.VERSION_MISSING}
"""Refusals that may resolve without a change of the manifest, and are retried soon; for example, wash was faster."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Inputs of a status; ``view``: the object in ``snapshot`` that receives it."""

    view: ApplicationView
    snapshot: Snapshot
    decision: Decision

    @property
    def recorded(self) -> Base | None:
        """The base that is recorded with this status."""
        return next((action.base for action in self.decision.actions if isinstance(action, Record)), None)


def status_of(seen: Seen) -> Json:
    """Return the new status of an object; fields without a value are left out."""
    former: Json = seen.view.status_fields()
    found = {**former, **_from_wadm(seen, former), **_record(seen, former)}
    found["observedGeneration"] = seen.view.generation
    if seen.snapshot.key.lattice_id:
        found["lattice"] = lattice_name(seen.snapshot.key.lattice_id)
    found["conditions"] = list(_conditions(seen, found, former))
    return {key: value for key, value in found.items() if value is not None}


def patch_of(former: Json, status: Json) -> Json:
    """Return the merge patch of ``status``; {} if nothing differs."""
    return {key: status.get(key) for key in (*former, *status) if former.get(key) != status.get(key)}


def condition_events(seen: Seen, status: Json) -> Iterator[tuple[str, str]]:
    """Yield reason and complete message of each Event to record: conditions that are new, or have a new message."""
    before, now = (
        {item["type"]: (item["status"], item["message"]) for item in found.get("conditions") or ()}
        for found in (seen.view.status_fields(), status)
    )
    for verdict in _besides(seen, status):
        if before.get(verdict.type) != now[verdict.type]:
            yield verdict.type, verdict.message


def moment(at: float) -> str:
    """Return Unix seconds as Kubernetes writes a time."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _from_wadm(seen: Seen, former: Mapping[str, Any]) -> Json:
    """Return the state and the report of wadm; empty while it is unknown, so that the last report remains."""
    waits = seen.decision.waits
    if waits is not None and waits.reason is Reason.NO_LATTICE:
        return {"phase": "Waiting", "message": None}
    if seen.snapshot.wadm is Absence.UNAVAILABLE:
        return {}
    model = seen.snapshot.model
    if model is None:
        empty: Json = dict.fromkeys(("deployedVersion", "versions", "scalers", "scalersLeftOut", "message"))
        return {"phase": "Waiting", **empty}
    found: Json = {
        "deployedVersion": model.deployed or None,
        "versions": versions_of([version for version, _ in model.versions], model.deployed),
    }
    if seen.snapshot.wadm_status is None and model.deployed and former.get("deployedVersion") == model.deployed:
        # A new leader has not received the status yet that its predecessor recorded.
        return found
    phase, message, wadm_status = _word(model, seen.snapshot.wadm_status)
    scalers, left_out = scalers_of(wadm_status)
    return {
        **found,
        "phase": phase,
        "message": message or None,
        "scalers": scalers or None,
        "scalersLeftOut": left_out or None,
    }


def _word(model: StoredModel, wadm_status: Status | None) -> tuple[str, str, tuple[Scaler, ...]]:
    """Return phase, message and scalers from wadm; its report on another state of the application is outdated.

    wadm 0.21 reports ``undeployed`` before it starts, if there is nothing to scale, and after it lost the application.
    """
    if not model.deployed:
        idle = wadm_status is not None and wadm_status.status == "undeployed"
        return "Undeployed", wadm_status.message if idle and wadm_status is not None else "", ()
    if wadm_status is None:
        return "Reconciling", f"version {model.deployed} is deployed; wadm has not reported its status yet", ()
    if wadm_status.status == "undeployed":
        reason = "the lattice has no host yet, or the application has nothing to scale"
        return "Waiting", f"version {model.deployed} is deployed, and wadm reports it as undeployed: {reason}", ()
    if wadm_status.status not in PHASES:
        return "Reconciling", wadm_status.message or f"wadm reports status {wadm_status.status}", wadm_status.scalers
    return PHASES[wadm_status.status], wadm_status.message, wadm_status.scalers


def _record(seen: Seen, former: Mapping[str, Any]) -> Json:
    """Return the common state of both sides, and the winner."""
    base, now = seen.recorded, moment(seen.snapshot.now)
    if base is None:
        return {}
    synced = {
        "specDigest": base.digest,
        "wadmVersion": base.version,
        "deployed": base.deployed,
        "newestVersion": base.newest,
        "undeploy": base.undeploy,
        "serial": base.serial,
        "bucket": base.bucket,
        "kvRevision": 0 if seen.snapshot.model is None else seen.snapshot.model.revision,
        "time": now,
    }
    progress = seen.snapshot.progress
    if progress.winner is None:
        return {"synced": synced}
    wins = [*(former.get("wins") or ()), _win(Win(progress.winner, seen.snapshot.now))]
    lost = None if progress.lost is None else {"side": progress.lost.side.value, "version": progress.lost.version}
    return {"synced": synced, "wins": wins[-_WINS:], "overridden": lost}


def _win(win: Win) -> Json:
    return {"side": win.side.value, "time": moment(win.at)}


def _conditions(seen: Seen, status: Json, former: Json) -> Iterator[Json]:
    before, now = former.get("conditions") or (), moment(seen.snapshot.now)
    for verdict in _verdicts(seen, status):
        yield make_condition(verdict, before, seen.view.generation, now)


def _verdicts(seen: Seen, status: Json) -> Iterator[Verdict]:
    synced = _synced(seen)
    yield from summary(_health(seen, status, synced))
    yield synced
    yield from _besides(seen, status)


def _synced(seen: Seen) -> Verdict:
    """Return the condition ``Synced``: whether both sides are equal."""
    waits, actions, refused = seen.decision.waits, seen.decision.actions, seen.decision.refused
    if seen.view.problem:
        return Verdict("Synced", "False", "InvalidManifest", seen.view.problem)
    if refused is not None:
        return Verdict("Synced", "False", refused.refusal.value, refused.full_message)
    if waits is not None:
        verdict = "Unknown" if waits.reason is Reason.WADM_UNAVAILABLE else "False"
        return Verdict("Synced", verdict, waits.reason.value, seen.snapshot.reason or waits.message)
    done = seen.recorded or (seen.view.object.base if not actions else None)
    if done is not None and all(isinstance(action, Record) for action in actions):
        return Verdict("Synced", "True", Reason.SYNCED.value, f"Kubernetes and wadm have version {done.version}")
    announcement = actions[0].announcement if actions else None
    reason, message = (
        (announcement.reason.value, announcement.message)
        if announcement
        else ("Pending", "wadm does not have the application yet")
    )
    return Verdict("Synced", "False", reason, seen.snapshot.reason or message)


def _stalled(seen: Seen, status: Json) -> tuple[str, str] | None:
    """Return why progress requires a change by a user, None if it does not."""
    waits, refused = seen.decision.waits, seen.decision.refused
    if seen.view.problem:
        return "InvalidManifest", seen.view.problem
    if refused is not None and refused.refusal not in _PASSING:
        return refused.refusal.value, refused.full_message
    if waits is not None and waits.reason is Reason.DUPLICATE:
        return waits.reason.value, waits.message
    if status.get("phase") == "Failed" and seen.snapshot.wadm is not Absence.UNAVAILABLE:
        return _phase_message(status)
    return None


def _phase_message(status: Json) -> tuple[str, str]:
    phase = status.get("phase") or "Waiting"
    return phase, status.get("message") or f"wadm reports phase {phase}"


def _health(seen: Seen, status: Json, synced: Verdict) -> Health:
    """Return the health; an application that is to be undeployed is ready when it does not run."""
    if stalled := _stalled(seen, status):
        return Health(State.STALLED, *stalled)
    if synced.status != "True":
        state = State.UNKNOWN if seen.snapshot.wadm is Absence.UNAVAILABLE else State.RECONCILING
        return Health(state, synced.reason, synced.message)
    phase = status.get("phase")
    reason, message = _phase_message(status)
    if phase == "Undeployed":
        return Health(State.READY, reason, "the application is undeployed, as requested")
    return Health(State.READY if phase == "Deployed" else State.RECONCILING, reason, message)


def _besides(seen: Seen, status: Json) -> Iterator[Verdict]:
    """Yield the conditions that exist only while they are True."""
    waits, refused = seen.decision.waits, seen.decision.refused
    if refused is not None:
        yield Verdict("Rejected", "True", refused.refusal.value, refused.message)
    if seen.view.ignored:
        yield Verdict("FieldsIgnored", "True", "UnknownToWadm", _ignored(seen.view.ignored))
    lost = status.get("overridden")
    if lost:
        kept = f": the change of {lost['side']} is in wadm's version {lost['version']}" if lost["version"] else ""
        yield Verdict("Overridden", "True", f"{lost['side'].capitalize()}Lost", f"both sides had changed{kept}")
    if waits is not None and waits.reason is Reason.CONTENDED:
        yield Verdict("Contended", "True", waits.reason.value, waits.message)


def _ignored(fields: tuple[str, ...]) -> str:
    more = f" and {len(fields) - NAMED} more" if len(fields) > NAMED else ""
    count = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
    return f"wadm does not support {count}, omitted from the request: {', '.join(fields[:NAMED])}{more}"
