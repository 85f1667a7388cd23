"""The page of an object: its chain, and what else was read; or the page of an object that does not exist.

Pure. In: the object with its chain, or the places of a search, and further inputs. Out: the page. Called by the modules
of kinds, which provide only the chain. Invariant: a page without an object shows where to find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trellis.read_model.explain.page import (
    HEALTHY,
    NOT_FOUND,
    READY,
    Explanation,
    Leader,
    Line,
    Rank,
    event_lines,
    warnings_of,
)
from trellis.read_model.health import Health, Verdict

Manifest = Mapping[str, Any]

NOT_EVALUATED: Final = "NotEvaluated"
"""Reason while no service has reconciled an object."""
_REFINED: Final = frozenset({Health.HEALTHY, Health.PROGRESSING})
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Absence:
    """Result of the search for an object that does not exist.

    ``namespace_missing``: its namespace does not exist; ``elsewhere``: other namespaces with the name; ``alike``:
    similar names, as ``namespace/name``.
    """

    namespace_missing: bool = False
    elsewhere: Sequence[str] = ()
    alike: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Beside:
    """Further inputs of a page: leaders of services, Events about the object, missing permissions."""

    leaders: Sequence[Leader] = ()
    events: Sequence[Manifest] = ()
    notes: Sequence[Line] = ()

    def lines(self, *uids: str) -> Iterator[Line]:
        """Yield the last lines of the page of the object with these uids."""
        yield from (leader.line() for leader in self.leaders)
        yield from event_lines(warnings_of(self.events, *uids))
        yield from self.notes


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind that has a page. ``short`` is its name in commands, ``listed`` the command that lists its objects.

    ``wanted``: predicate of a healthy object.
    """

    kind: str
    short: str
    listed: str
    wanted: str = READY

    def page(
        self, found: Manifest, chain: Iterable[Line], beside: Beside, verdict: Verdict | None = None
    ) -> Explanation:
        """Return the page of an object. ``verdict``: its health; without it, that of the cause in its chain."""
        metadata = found["metadata"]
        place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
        own = [*chain]
        lines = [*own, *beside.lines(str(metadata.get("uid") or ""))]
        cause = cause_of(own)
        # Pods and Events, which only a page reads, can show why an object does not progress.
        if verdict is None or (cause and cause.rank is Rank.CAUSE and verdict.health in _REFINED):
            verdict = verdict_of(cause)
        return Explanation(f"{self.short} {place}{metadata['name']}", lines, self.wanted, verdict)

    def absent(self, name: str, namespace: str | None, absence: Absence, *others: Line) -> Explanation:
        """Return the page of an object that does not exist; ``others``: other possible causes."""
        place = f" in namespace {namespace}" if namespace else ""
        text, do = f'{self.kind} "{name}" not found{place}', f"`{self.listed}` lists the existing ones"
        rank = Rank.SYMPTOM
        if absence.namespace_missing:
            text, do, rank = f'namespace "{namespace}" not found', "`kubectl get namespaces` lists them", Rank.CAUSE
        elif absence.elsewhere:
            there = ", ".join(absence.elsewhere[:_NAMED])
            text, do = f"{text}, but in namespace {there}", self._see(f"{absence.elsewhere[0]}/{name}")
            rank = Rank.CAUSE
        elif absence.alike:
            text, do = f"{text}, but {', '.join(absence.alike[:_NAMED])}", self._see(absence.alike[0])
        lines = [Line(self.short, text, False, do, rank, NOT_FOUND, Health.MISSING), *others]
        reason = next((line.reason for line in others if line.trouble and line.rank is Rank.CAUSE), "") or NOT_FOUND
        return Explanation(f"{self.short} {name}", lines, self.wanted, Verdict(Health.MISSING, reason, text))

    def _see(self, key: str) -> str:
        namespace, _, name = key.rpartition("/")
        return f"`trellis explain {self.short}/{name}{f' -n {namespace}' if namespace else ''}`"


def cause_of(chain: Iterable[Line]) -> Line | None:
    """Return the step of a chain that is the cause, None if nothing is wrong."""
    return Explanation("", [*chain]).cause


def verdict_of(cause: Line | None, healthy: str = HEALTHY) -> Verdict:
    """Return the health of an object by the cause of its trouble; ``healthy``: reason if there is none."""
    return Verdict(Health.HEALTHY, healthy) if cause is None else cause.verdict


def looked_at(found: Manifest, service: str) -> Line:
    """Return the step that shows if a service has reconciled the current generation of an object."""
    generation = found["metadata"].get("generation") or 0
    seen = (found.get("status") or {}).get("observedGeneration")
    if seen is None:
        text, do = f"{service} has not reconciled it yet", f"start it with `trellis run {service}` if it does not run"
        return Line("observed", text, False, do, reason=NOT_EVALUATED, state=Health.UNKNOWN)
    if seen < generation:
        text = f"{service} has reconciled generation {seen} of {generation}"
        return Line("observed", text, ok=False, reason="GenerationNotObserved")
    return Line("observed", f"generation {generation}", ok=True)
