"""The page of an object: what stands on it besides the chain of its own kind, and what if the object is not there.

Pure. In: the object with its chain, or where it was looked for; what was read beside it. Out: the page. Called by the
modules of kinds, which know the chain and nothing else. Invariant: a page that names no object says where to find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trellis.read_model.explain.page import READY, Explanation, Leader, Line, Rank, event_lines, warnings_of

Manifest = Mapping[str, Any]

_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Absence:
    """Where an object that is not there was looked for.

    ``gone``: not even its namespace is there; ``elsewhere``: other namespaces with one of the name; ``alike``: by
    ``namespace/name``, those named almost so.
    """

    gone: bool = False
    elsewhere: Sequence[str] = ()
    alike: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Beside:
    """What was read beside an object: who leads the services, Events about it, the rights that were lacking."""

    leaders: Sequence[Leader] = ()
    events: Sequence[Manifest] = ()
    notes: Sequence[Line] = ()

    def lines(self, *uids: str) -> Iterator[Line]:
        """Yield the end of the page of the object that has these uids."""
        yield from (leader.line() for leader in self.leaders)
        yield from event_lines(warnings_of(self.events, *uids))
        yield from self.notes


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind that has a page. ``short`` is its name in commands, ``listed`` the command that shows those that are.

    ``wanted``: what one is if all is well.
    """

    kind: str
    short: str
    listed: str
    wanted: str = READY

    def page(self, found: Manifest, chain: Iterable[Line], beside: Beside) -> Explanation:
        """Return the page of an object."""
        metadata = found["metadata"]
        place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
        lines = [*chain, *beside.lines(str(metadata.get("uid") or ""))]
        return Explanation(f"{self.short} {place}{metadata['name']}", lines, self.wanted)

    def absent(self, name: str, namespace: str | None, absence: Absence, *others: Line) -> Explanation:
        """Return the page of what is not there; ``others``: what else may be why."""
        place = f" in namespace {namespace}" if namespace else ""
        text, do = f"there is no {self.kind} {name}{place}", f"`{self.listed}` lists those that are"
        rank = Rank.SYMPTOM
        if absence.gone:
            text, do, rank = f"there is no namespace {namespace}", "`kubectl get namespaces` lists them", Rank.CAUSE
        elif absence.elsewhere:
            there = ", ".join(absence.elsewhere[:_NAMED])
            text, do = f"{text}, but in namespace {there}", self._see(f"{absence.elsewhere[0]}/{name}")
            rank = Rank.CAUSE
        elif absence.alike:
            text, do = f"{text}, but {', '.join(absence.alike[:_NAMED])}", self._see(absence.alike[0])
        return Explanation(f"{self.short} {name}", [Line(self.short, text, False, do, rank), *others], self.wanted)

    def _see(self, key: str) -> str:
        namespace, _, name = key.rpartition("/")
        return f"`trellis explain {self.short}/{name}{f' -n {namespace}' if namespace else ''}`"


def cause_of(chain: Iterable[Line]) -> Line | None:
    """Return the step of a chain that is the answer, None if nothing is wrong."""
    return Explanation("", [*chain]).cause


def looked_at(found: Manifest, service: str) -> Line:
    """Return whether a service has looked at an object as it is now."""
    generation = found["metadata"].get("generation") or 0
    seen = (found.get("status") or {}).get("observedGeneration")
    if seen is None:
        return Line("looked at", f"never: is {service} running?", False, f"`trellis run {service}` starts it")
    if seen < generation:
        return Line("looked at", f"generation {seen}, and it is at {generation} by now", well=False)
    return Line("looked at", f"generation {generation}", well=True)
