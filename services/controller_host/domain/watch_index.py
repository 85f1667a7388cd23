"""Index of the watches of one kind: finds the controllers whose watches match an object.

Pure. In: controllers and their watches. Out: for an object's namespace and labels, the controllers with a matching
watch. Called by ``shared_watches`` for each change. Invariant: the result equals a comparison with every watch; the
work grows with the watches that share a namespace, or a value of an equality-based label term.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from controller_host.domain.watch_specs import Labels, Term, WatchSpec

_Pair = tuple[str, str]


@dataclass(eq=False, slots=True)
class _Watch:
    """One watch of one controller."""

    controller: str
    terms: tuple[Term, ...]


@dataclass(eq=False, slots=True)
class _Place:
    """Watches in one namespace, or in all; those with a term on values of a label are indexed by the label."""

    by_label: dict[_Pair, set[_Watch]] = field(default_factory=dict)
    others: set[_Watch] = field(default_factory=set)

    def add(self, watch: _Watch) -> None:
        for bucket in self._pairs(watch) or [self.others]:
            bucket.add(watch)

    def remove(self, watch: _Watch) -> None:
        self.others.discard(watch)
        for term in watch.terms:
            for value in term.values or ():
                bucket = self.by_label.get((term.key, value))
                if bucket is not None:
                    bucket.discard(watch)
                    if not bucket:
                        del self.by_label[term.key, value]

    def candidates(self, labels: Labels) -> Iterator[_Watch]:
        yield from self.others
        if self.by_label:
            for pair in labels.items():
                yield from self.by_label.get(pair, ())

    def _pairs(self, watch: _Watch) -> list[set[_Watch]]:
        """Return the buckets of the most selective label: the one with the fewest watches so far."""
        wanted = [term for term in watch.terms if term.values and not term.negated]
        if not wanted:
            return []
        best = min(
            wanted, key=lambda term: sum(len(self.by_label.get((term.key, item), ())) for item in term.values or ())
        )
        return [self.by_label.setdefault((best.key, value), set()) for value in best.values or ()]

    def _wanted_by(self, term: Term) -> int:
        return sum(len(self.by_label.get((term.key, value), ())) for value in term.values or ())

    def __bool__(self) -> bool:
        return bool(self.others or self.by_label)


@dataclass(eq=False)
class WatchIndex:
    """Watches of one kind, by controller."""

    _places: dict[str | None, _Place] = field(default_factory=dict)
    _by_controller: dict[str, list[tuple[WatchSpec, _Watch]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether there are watches."""
        return bool(self._by_controller)

    def controllers(self) -> list[str]:
        """Return the controllers that have watches."""
        return list(self._by_controller)

    def specs(self, controller: str) -> list[WatchSpec]:
        """Return the watches of a controller."""
        return [spec for spec, _ in self._by_controller.get(controller, ())]

    def add(self, controller: str, spec: WatchSpec) -> None:
        """Add a watch of a controller."""
        watch = _Watch(controller, spec.terms)
        self._by_controller.setdefault(controller, []).append((spec, watch))
        for namespace in _namespaces(spec):
            self._places.setdefault(namespace, _Place()).add(watch)

    def remove(self, controller: str) -> None:
        """Remove all watches of a controller."""
        for spec, watch in self._by_controller.pop(controller, ()):
            for namespace in _namespaces(spec):
                place = self._places[namespace]
                place.remove(watch)
                if not place:
                    del self._places[namespace]

    def concerned(self, namespace: str, labels: Labels) -> set[str]:
        """Return the controllers with a watch that matches; ``namespace`` is "" for cluster-scoped kinds."""
        # Objects of a cluster-scoped kind match in every watch, regardless of its namespaces.
        places = [self._places.get(None), self._places.get(namespace)] if namespace else self._places.values()
        found: set[str] = set()
        for place in places:
            if place is not None:
                found.update(
                    candidate.controller for candidate in place.candidates(labels) if _holds(candidate.terms, labels)
                )
        return found


def _holds(terms: tuple[Term, ...], labels: Labels) -> bool:
    return all(term.holds(labels) for term in terms)


def _namespaces(spec: WatchSpec) -> tuple[str | None, ...]:
    return (None,) if spec.namespaces is None else spec.namespaces
