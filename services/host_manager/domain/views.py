"""Groups and disruption budgets, as their watches keep them.

Pure: raw objects in, small views out. Called by the informers that ``app`` makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from host_manager.domain.snapshot import view_head
from trellis import names


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as its watch keeps it: what makes a difference to us. Its status is ours alone, so that is left out.

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
        """Whether its hosts are to roll for changed Secrets that they were given."""
        return self.restart_on == names.RESTART_ON_CHANGE


def view_group(manifest: Mapping[str, Any]) -> GroupView:
    """Project a group."""
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
    """A disruption budget: what it selects pods by, None if it selects none."""

    namespace: str
    name: str
    labels: tuple[tuple[str, str], ...] | None


def view_budget(manifest: Mapping[str, Any]) -> BudgetView:
    """Project a disruption budget; one that selects by expressions is taken to select all that its labels do."""
    metadata, selector = manifest["metadata"], manifest["spec"].get("selector")
    labels = None if selector is None else tuple(sorted((selector.get("matchLabels") or {}).items()))
    return BudgetView(metadata["namespace"], metadata["name"], labels)
