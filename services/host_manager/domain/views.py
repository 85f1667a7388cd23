"""Views of host groups and disruption budgets in their informers.

Pure: raw objects in, small views out. Called by the informers of ``watches``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from host_manager.domain.snapshot import view_head
from trellis import names


@dataclass(frozen=True, slots=True)
class GroupView:
    """A host group: the fields whose change requires a reconcile; without the status, which only host_manager writes.

    ``name``: with its namespace. ``deleted_at``: Unix seconds of its deletion, 0 if there is none.
    """

    uid: str
    generation: int
    deleting: bool
    finalizers: tuple[str, ...]
    wants_latest: bool
    restart_on: str = ""
    name: str = ""
    deleted_at: int = 0

    @property
    def restarts_on_secrets(self) -> bool:
        """True if its hosts roll for changed Secrets that they received."""
        return self.restart_on == names.RESTART_ON_CHANGE


def view_group(manifest: Mapping[str, Any]) -> GroupView:
    """Return the view of a host group."""
    head = view_head(manifest)
    return GroupView(
        uid=head.uid,
        generation=head.generation,
        deleting=head.deleting,
        finalizers=head.finalizers,
        wants_latest=head.wants_latest,
        restart_on=head.restart_on,
        name=head.key,
        deleted_at=head.deleted_at,
    )


@dataclass(frozen=True, slots=True)
class BudgetView:
    """A disruption budget; ``labels``: its selector, None if it selects no pods."""

    namespace: str
    name: str
    labels: tuple[tuple[str, str], ...] | None


def view_budget(manifest: Mapping[str, Any]) -> BudgetView:
    """Return the view of a disruption budget; expressions in its selector are ignored."""
    metadata, selector = manifest["metadata"], manifest["spec"].get("selector")
    labels = None if selector is None else tuple(sorted((selector.get("matchLabels") or {}).items()))
    return BudgetView(metadata["namespace"], metadata["name"], labels)
