"""Judges whether one object was ever in two hands: from the API server's audit log, and from the replicas' journals.

Pure. In: audit records in the order of the log; journal lines of ``support.cluster.replica``. Out: violations as
sentences, none if the promise of design section 3 (rules 3 and 7) was kept. Called by the experiments that break
leadership.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Record = Mapping[str, Any]
_AGENT = re.compile(r"^(?P<product>[^/ ]+)/\S* \((?P<replica>[^)]*)\)$")


@dataclass(frozen=True)
class Lease:
    """The lease of a service, and the product its replicas name in their user agent."""

    namespace: str
    name: str

    @property
    def product(self) -> str:
        return self.name

    @property
    def place(self) -> tuple[str, str, str]:
        return ("leases", self.namespace, self.name)


def place(record: Record) -> tuple[str, str, str]:
    """Return which object a write was about."""
    ref = record.get("objectRef", {})  # calls about no object are logged, too
    return (ref.get("resource", ""), ref.get("namespace", ""), ref.get("name", ""))


def writer(record: Record, product: str) -> str | None:
    """Return the replica of a service that sent a write; None for everybody else's."""
    found = _AGENT.match(record.get("userAgent", ""))
    return found["replica"] if found and found["product"] == product else None


def accepted(record: Record) -> bool:
    """Say whether the server carried the write out."""
    return 200 <= int(record["responseStatus"]["code"]) < 300


def late_writes(records: Iterable[Record], lease: Lease) -> list[str]:
    """Return each accepted write of a former leader to an object its successor had written already.

    A term begins with the first accepted write of the lease by another than the holder. Only holder and candidates
    write the lease, so the log says by itself who led when. A write of a process that never led is a violation too;
    namespaces are created before the first term, by any process. A leader does not learn that another user deleted or
    took its lease: its writes until its next renewal are no violation. Two leaders are possible for that time; the
    versions that each reads before it writes keep their writes apart.
    """
    term, holder, unaware = 0, "", ""
    term_of: dict[str, int] = {}
    newest: dict[tuple[str, str, str], tuple[int, Record]] = {}
    found: list[str] = []
    for record in records:
        who, where = writer(record, lease.product), place(record)
        if where == lease.place and record["verb"] != "get":
            # Also a refusal tells who holds it no more.
            unaware = "" if who == unaware else unaware
            if who is None and accepted(record):
                unaware = holder
        if who is None or not accepted(record) or where[0] == "namespaces":
            continue
        if where == lease.place:
            if who != holder:
                term, holder = term + 1, who
            term_of[who] = term
            continue
        own = term_of.get(who, 0)
        led, before = newest.get(where, (0, record))
        if not own:
            found.append(f"{_describe(record)} by {who}, who never led")
        elif own < led and who != unaware:
            found.append(f"{_describe(record)} by {who}, after {_describe(before)} by {writer(before, lease.product)}")
        else:
            newest[where] = (own, record)
    return found


def _describe(record: Record) -> str:
    return f"{record['verb']} {'/'.join(part for part in place(record) if part)} at {record['stageTimestamp']}"


@dataclass
class Run:
    """One run of a key by one replica; times by CLOCK_BOOTTIME. ``ended`` None: nobody saw the end.

    ``wrote``: when it asked for writes that were accepted.
    """

    replica: str
    key: str
    began: float
    ended: float | None = None
    wrote: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Fate:
    """The faults of a replica: the time of its death, and the times between which it certainly stood still."""

    killed: float | None = None
    stopped: tuple[float, float] | None = None


def runs_of(lines: Iterable[Mapping[str, Any]]) -> list[Run]:
    """Return the runs of keys in a journal."""
    runs: list[Run] = []
    under_way: dict[tuple[str, str], Run] = {}
    for line in lines:
        replica, key, at = line["replica"], line["key"], line["at"]
        match line["what"]:
            case "began":
                under_way[replica, key] = run = Run(replica, key, at)
                runs.append(run)
            case "wrote":
                under_way[replica, key].wrote.append(at)
            case "ended":
                under_way.pop((replica, key)).ended = at
    return runs


def overlaps(runs: Sequence[Run], fates: Mapping[str, Fate]) -> list[str]:
    """Return each moment in which a key was in work by two replicas.

    The run of a replica that was killed ends with it. A run in which a replica was stopped is in work until the stop: a
    stopped process does nothing. Its remaining work when the process goes on must be without effect: an accepted write
    that it asked for then is a violation by itself (of one that was under way, the API server's log tells when it
    arrived), and where nothing was written there is nothing to overlap with.
    """
    found: list[str] = []
    spans: dict[str, list[tuple[float, float, str]]] = {}
    for run in runs:
        end = _end(run, fates.get(run.replica, Fate()), found)
        spans.setdefault(run.key, []).append((run.began, end, run.replica))
    for key, of_key in spans.items():
        latest, holder = float("-inf"), ""
        for began, ended, replica in sorted(of_key):
            if began < latest and replica != holder:
                found.append(f"{key}: {replica} began at {began:.3f}, {holder} ended at {latest:.3f}")
            if ended > latest:
                latest, holder = ended, replica
    return found


def _end(run: Run, fate: Fate, found: list[str]) -> float:
    """Return until when a run can have had an effect; note what it did that it must not have done."""
    if fate.stopped is not None and run.began <= fate.stopped[0] and (run.ended or fate.stopped[1]) >= fate.stopped[1]:
        found += [
            f"{run.key}: {run.replica} wrote at {at:.3f}, having been stopped since {fate.stopped[0]:.3f}"
            for at in run.wrote
            if at >= fate.stopped[1]
        ]
        return fate.stopped[0]
    if run.ended is not None:
        return run.ended
    if fate.killed is None:
        found.append(f"{run.key}: the run {run.replica} began at {run.began:.3f} has no end")
        return run.began
    return fate.killed
