"""The status of an Application, from what is known of it: the words of wadm, and conditions that tools understand.

Pure. In: an object, what was decided, wadm's word. Out: a status, and what of it is new. Called by ``app``. Invariants:
the same is always written the same, so that nothing is written twice; no time in it moves by itself; of what is not
known the last word stays, and ``Synced`` is Unknown since then.
Source: kstatus reads Ready, Reconciling and Stalled; wadm 0.21 has the six phases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from application_manager.domain.actions import Decision, Reason, Record
from application_manager.domain.placement import name_of
from application_manager.domain.sides import Absence, Base, Win
from application_manager.domain.snapshot import Snapshot
from application_manager.domain.status_limits import scalers_of, versions_of
from application_manager.domain.views import ApplicationView
from trellis.crds.conditions import Health, State, Verdict, make_condition, shortened, summary
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
    # What wadm before 0.14 wrote to its stream, where it stays until something else is to be said.
    "ready": "Deployed",
    "compensating": "Reconciling",
}
NAMED: Final = 20
"""Fields that a message names; of more the number."""
_MESSAGE_KEPT: Final = 4096
"""Characters of a message; names of fields, which are in some, have no limit, and Kubernetes takes 32,768."""
_TOLD: Final = ("Rejected", "Overridden", "Contended", "FieldsIgnored")
_WINS: Final = 4
_PASSING: Final = {Refusal.FAILED, Refusal.VERSION_EXISTS, Refusal.VERSION_MISSING}
"""What is tried again soon and may then be otherwise though nobody changes the manifest: wash was there first."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All that a status is made of; ``view`` is the object in ``snapshot`` that it is written to."""

    view: ApplicationView
    snapshot: Snapshot
    decision: Decision

    @property
    def recorded(self) -> Base | None:
        """The base that is written down with this status."""
        return next((action.base for action in self.decision.actions if isinstance(action, Record)), None)


def status_of(seen: Seen) -> Json:
    """Return the status that an object is to have; fields without a value are left out."""
    former: Json = seen.view.status_fields()
    found = {**former, **_from_wadm(seen, former), **_record(seen, former)}
    found["observedGeneration"] = seen.view.generation
    if seen.snapshot.key.mark:
        found["lattice"] = name_of(seen.snapshot.key.mark)
    found["conditions"] = list(_conditions(seen, found, former))
    return {key: value for key, value in found.items() if value is not None}


def patch_of(former: Json, status: Json) -> Json:
    """Return what a merge patch is to have in ``status``; {} if nothing differs."""
    return {key: status.get(key) for key in (*former, *status) if former.get(key) != status.get(key)}


def news_of(former: Json, status: Json) -> Iterator[tuple[str, str]]:
    """Yield reason and message of what people are told by an Event: what was not so before."""
    before = {one["type"]: (one["status"], one["message"]) for one in former.get("conditions") or ()}
    for one in status["conditions"]:
        new = one["status"] == "True" and before.get(one["type"]) != ("True", one["message"])
        if one["type"] in _TOLD and new:
            yield one["type"], one["message"]


def moment(at: float) -> str:
    """Return Unix seconds as Kubernetes writes a time."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _from_wadm(seen: Seen, former: Mapping[str, Any]) -> Json:
    """Return what wadm has and says; nothing if it is not known, so that the last word stays."""
    waits = seen.decision.waits
    if waits is not None and waits.reason is Reason.NO_LATTICE:
        return {"phase": "Waiting", "message": None}
    if seen.snapshot.wadm is Absence.AWAY:
        return {}
    model = seen.snapshot.model
    if model is None:
        empty: Json = dict.fromkeys(("deployedVersion", "versions", "scalers", "scalersLeftOut", "message"))
        return {"phase": "Waiting", **empty}
    found: Json = {
        "deployedVersion": model.deployed or None,
        "versions": versions_of([version for version, _ in model.versions], model.deployed),
    }
    if seen.snapshot.said is None and model.deployed and former.get("deployedVersion") == model.deployed:
        # A new leader has not heard yet what a former one wrote down.
        return found
    phase, message, said = _word(model, seen.snapshot.said)
    scalers, left_out = scalers_of(said)
    return {
        **found,
        "phase": phase,
        "message": message or None,
        "scalers": scalers or None,
        "scalersLeftOut": left_out or None,
    }


def _word(model: StoredModel, said: Status | None) -> tuple[str, str, tuple[Scaler, ...]]:
    """Return phase, message and scalers in wadm's words; what it said of another state of the application is old.

    wadm 0.21 says ``undeployed`` of what it has not begun with, of what has nothing to scale, and of what it forgot.
    """
    if not model.deployed:
        idle = said is not None and said.status == "undeployed"
        return "Undeployed", said.message if idle and said is not None else "", ()
    if said is None:
        return "Reconciling", f"version {model.deployed} is deployed; wadm has not reported its status yet", ()
    if said.status == "undeployed":
        why = "the lattice has no host yet, or the application has nothing to scale"
        return "Waiting", f"version {model.deployed} is deployed, and wadm reports it as undeployed: {why}", ()
    if said.status not in PHASES:
        return "Reconciling", said.message or f"wadm reports status {said.status}", said.scalers
    return PHASES[said.status], said.message, said.scalers


def _record(seen: Seen, former: Mapping[str, Any]) -> Json:
    """Return what both sides have now, and who won."""
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
        whole = verdict._replace(message=shortened(verdict.message, _MESSAGE_KEPT))
        yield make_condition(whole, before, seen.view.generation, now)


def _verdicts(seen: Seen, status: Json) -> Iterator[Verdict]:
    synced = _synced(seen)
    yield from summary(_health(seen, status, synced))
    yield synced
    yield from _besides(seen, status)


def _synced(seen: Seen) -> Verdict:
    """Return whether both sides have the same."""
    waits, actions, refused = seen.decision.waits, seen.decision.actions, seen.decision.refused
    if seen.view.problem:
        return Verdict("Synced", "False", "InvalidManifest", seen.view.problem)
    if refused is not None:
        return Verdict("Synced", "False", refused.refusal.value, refused.words)
    if waits is not None:
        verdict = "Unknown" if waits.reason is Reason.WADM_AWAY else "False"
        return Verdict("Synced", verdict, waits.reason.value, seen.snapshot.why or waits.message)
    done = seen.recorded or (seen.view.object.base if not actions else None)
    if done is not None and all(isinstance(action, Record) for action in actions):
        return Verdict("Synced", "True", Reason.SYNCED.value, f"Kubernetes and wadm have version {done.version}")
    said = actions[0].said if actions else None
    reason, message = (
        (said.reason.value, said.message) if said else ("Pending", "wadm does not have the application yet")
    )
    return Verdict("Synced", "False", reason, seen.snapshot.why or message)


def _stalled(seen: Seen, status: Json) -> tuple[str, str] | None:
    """Return why nothing goes on until somebody changes something, None if something does."""
    waits, refused = seen.decision.waits, seen.decision.refused
    if seen.view.problem:
        return "InvalidManifest", seen.view.problem
    if refused is not None and refused.refusal not in _PASSING:
        return refused.refusal.value, refused.words
    if waits is not None and waits.reason is Reason.DUPLICATE:
        return waits.reason.value, waits.message
    if status.get("phase") == "Failed" and seen.snapshot.wadm is not Absence.AWAY:
        return _words(status)
    return None


def _words(status: Json) -> tuple[str, str]:
    phase = status.get("phase") or "Waiting"
    return phase, status.get("message") or f"wadm reports phase {phase}"


def _health(seen: Seen, status: Json, synced: Verdict) -> Health:
    """Return the health: an application that is not to run is ready when it does not run."""
    if stalled := _stalled(seen, status):
        return Health(State.STALLED, *stalled)
    if synced.status != "True":
        state = State.UNKNOWN if seen.snapshot.wadm is Absence.AWAY else State.RECONCILING
        return Health(state, synced.reason, synced.message)
    phase = status.get("phase")
    reason, message = _words(status)
    if phase == "Undeployed":
        return Health(State.READY, reason, "the application is undeployed, as requested")
    return Health(State.READY if phase == "Deployed" else State.RECONCILING, reason, message)


def _besides(seen: Seen, status: Json) -> Iterator[Verdict]:
    """Yield the conditions that are there while there is reason for them."""
    waits, refused = seen.decision.waits, seen.decision.refused
    if refused is not None:
        yield Verdict("Rejected", "True", refused.refusal.value, refused.message)
    if seen.view.ignored:
        yield Verdict("FieldsIgnored", "True", "UnknownToWadm", _ignored(seen.view.ignored))
    lost = status.get("overridden")
    if lost:
        kept = f": what {lost['side']} had is in wadm's version {lost['version']}" if lost["version"] else ""
        yield Verdict("Overridden", "True", f"{lost['side'].capitalize()}Lost", f"both sides had changed{kept}")
    if waits is not None and waits.reason is Reason.CONTENDED:
        yield Verdict("Contended", "True", waits.reason.value, waits.message)


def _ignored(fields: tuple[str, ...]) -> str:
    more = f" and {len(fields) - NAMED} more" if len(fields) > NAMED else ""
    return f"wadm does not know {', '.join(fields[:NAMED])}{more}: they are omitted from the request"
