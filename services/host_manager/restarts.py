"""Which changed Secrets a group's hosts were given, and what the pods say of them so that they roll, once each.

Pure. In: a snapshot. Out: an annotation of the pod template. Called by ``decide``. Invariants: what pods say once they
say for ever, because to take it away would roll them too; hosts that started since are not rolled for it.
Source of who was given what: the ids that hosts have in their tokens, which are those that they have in the lattice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from host_manager.environment import POD_LABEL
from host_manager.lattice import reports_of
from host_manager.secret_changes import SecretChange, is_newer
from host_manager.snapshot import Snapshot
from trellis import names

_SAID_MOST = 64
"""Secrets that pods say they were restarted for; of more, the newest."""


def uses(snapshot: Snapshot, change: SecretChange) -> bool | None:
    """Say whether hosts that run in the group now were given a former version; None while that cannot be known."""
    view = snapshot.lattice
    told = {report.sighting.host.id for report in reports_of(snapshot).values() if report.sighting is not None}
    if told & change.hosts:
        return True
    if view is None:
        return False  # it has no address, so that nobody could ask from there
    if view.linked_since is None or not view.settled:
        return None
    if all(pod.tells for pod in snapshot.pods):
        return False
    # Hosts of adopted pods do not say which pod they are: any of the lattice may be one of these.
    return any(seen.host.id in change.hosts for seen in view.hosts if POD_LABEL not in seen.host.labels)


def restarted_for(snapshot: Snapshot, workload: Mapping[str, Any] | None) -> str:
    """Return what the pods are to say, "" if nothing; ``workload``: what runs them now."""
    said = _said(workload)
    for change in snapshot.changes:
        if uses(snapshot, change) and _is_news(change, said):
            said[change.secret] = change.version
    newest = sorted(said.items(), key=lambda item: _number(item[1]))[-_SAID_MOST:]
    return " ".join(f"{secret}={version}" for secret, version in sorted(newest))


def over(snapshot: Snapshot, workload: Mapping[str, Any] | None) -> list[SecretChange]:
    """Return the changes that nothing is to be done about any more: not used, or said by the pods already."""
    said = _said(workload)
    return [one for one in snapshot.changes if uses(snapshot, one) is False or not _is_news(one, said)]


def _is_news(change: SecretChange, said: Mapping[str, str]) -> bool:
    former = said.get(change.secret)
    return former is None or is_newer(change.version, former)


def _said(workload: Mapping[str, Any] | None) -> dict[str, str]:
    template = ((workload or {}).get("spec") or {}).get("template") or {}
    text = ((template.get("metadata") or {}).get("annotations") or {}).get(names.ANNOTATION_RESTARTED_FOR) or ""
    pairs = (one.partition("=") for one in str(text).split())
    return {secret: version for secret, _, version in pairs if version}


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0
