"""Parsed watches of a controller, for comparison with objects.

Pure. In: ``spec.watches``. Out: ``WatchSpec``, which is matched against objects. Called by ``shared_watches``.
Source: metav1.LabelSelector: an object without the label matches NotIn and DoesNotExist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from trellis.crds.wasm_controllers import EVERYWHERE, LabelRequirement, LabelSelector, Watch

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Term:
    """A condition on one label: it exists with one of ``values`` (None: with any value), or ``negated`` the reverse."""

    key: str
    values: tuple[str, ...] | None = None
    negated: bool = False

    def holds(self, labels: Labels) -> bool:
        """Return whether labels meet the condition."""
        value = labels.get(self.key)
        found = value is not None and (self.values is None or value in self.values)
        return found is not self.negated


@dataclass(frozen=True, slots=True)
class WatchSpec:
    """Watch of objects of one kind; ``namespaces``: None means all; ignored for cluster-scoped kinds."""

    api_version: str
    kind: str
    namespaces: tuple[str, ...] | None
    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        """Return ``batch/v1/Job``, the format of ``TRELLIS_CONTROLLER_RESOURCES``."""
        return f"{self.api_version}/{self.kind}"

    @property
    def type(self) -> tuple[str, str]:
        """``apiVersion`` and kind."""
        return self.api_version, self.kind

    def means(self, namespace: str, labels: Labels) -> bool:
        """Return whether an object matches; ``namespace`` is "" for cluster-scoped kinds."""
        there = not namespace or self.namespaces is None or namespace in self.namespaces
        return there and all(term.holds(labels) for term in self.terms)


class RefusalReason(StrEnum):
    """Reason why a watch does not work."""

    WATCH_NOT_GRANTED = "WatchNotGranted"
    UNKNOWN_KIND = "UnknownKind"
    ACCOUNT_FORBIDDEN = "AccountForbidden"
    ACCESS_NOT_CHECKED = "AccessNotChecked"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a watch does not work, and a message with the resolution."""

    reason: RefusalReason
    message: str


def specs_of(watches: Iterable[Watch], home: str) -> tuple[WatchSpec, ...]:
    """Return the watches of a controller in namespace ``home``, without duplicates."""
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
    return (*equal, *(_term(match_expression) for match_expression in selector.match_expressions or ()))


def _term(label_requirement: LabelRequirement) -> Term:
    values = tuple(sorted(label_requirement.values or ())) if label_requirement.operator in {"In", "NotIn"} else None
    return Term(label_requirement.key, values, negated=label_requirement.operator in {"NotIn", "DoesNotExist"})
