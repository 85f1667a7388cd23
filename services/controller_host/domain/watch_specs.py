"""What a controller is called for, ready to be compared with objects.

Pure. In: ``spec.watches``. Out: ``WatchSpec``, which says of an object whether it is meant. Called by
``shared_watches``. Source: metav1.LabelSelector: an object without the label meets NotIn and DoesNotExist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from trellis.crds.wasm_controllers import EVERYWHERE, LabelRequirement, LabelSelector, Watch

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Term:
    """A condition on one label: that it is there, with one of ``values`` (None: with any); ``negated``: or just not."""

    key: str
    values: tuple[str, ...] | None = None
    negated: bool = False

    def holds(self, labels: Labels) -> bool:
        """Return whether it does."""
        value = labels.get(self.key)
        found = value is not None and (self.values is None or value in self.values)
        return found is not self.negated


@dataclass(frozen=True, slots=True)
class WatchSpec:
    """Objects of one kind; ``namespaces`` None is all of them, and of no matter for kinds without."""

    api_version: str
    kind: str
    namespaces: tuple[str, ...] | None
    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        """Return ``batch/v1/Job``, as the platform's list has it."""
        return f"{self.api_version}/{self.kind}"

    @property
    def type(self) -> tuple[str, str]:
        """``apiVersion`` and kind."""
        return self.api_version, self.kind

    def means(self, namespace: str, labels: Labels) -> bool:
        """Return whether an object is meant; ``namespace`` is "" for kinds without."""
        there = not namespace or self.namespaces is None or namespace in self.namespaces
        return there and all(term.holds(labels) for term in self.terms)


class RefusalReason(StrEnum):
    """Why a watch does not work now."""

    WATCH_NOT_GRANTED = "WatchNotGranted"
    UNKNOWN_KIND = "UnknownKind"
    ACCOUNT_FORBIDDEN = "AccountForbidden"
    ACCESS_NOT_CHECKED = "AccessNotChecked"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a watch does not work now, and what to do about it."""

    reason: RefusalReason
    message: str


def specs_of(watches: Iterable[Watch], home: str) -> tuple[WatchSpec, ...]:
    """Return what a controller of namespace ``home`` is called for, each once."""
    found = []
    for watch in watches:
        names = (home,) if watch.namespaces is None else tuple(sorted(watch.namespaces))
        terms = _terms(watch.label_selector)
        found.append(WatchSpec(watch.api_version, watch.kind, None if EVERYWHERE in names else names, terms))
    return tuple(dict.fromkeys(found))


def _terms(selector: LabelSelector | None) -> tuple[Term, ...]:
    if selector is None:
        return ()
    equal = [Term(key, (value,)) for key, value in sorted((selector.match_labels or {}).items())]
    return (*equal, *(_term(one) for one in selector.match_expressions or ()))


def _term(one: LabelRequirement) -> Term:
    values = tuple(sorted(one.values or ())) if one.operator in {"In", "NotIn"} else None
    return Term(one.key, values, negated=one.operator in {"NotIn", "DoesNotExist"})
