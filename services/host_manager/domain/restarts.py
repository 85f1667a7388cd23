"""Restarts for changed Secrets: the annotations of the pod template that roll the hosts, once for each change.

Pure. In: a snapshot. Out: annotations of the pod template. Called by ``decide``. Invariants: an entry is never removed,
as that would cause a roll, too; hosts that started after the change are not rolled for it; a Secret that changes often
rolls a group at most once in ``rest`` seconds.
Source of the receivers of a Secret: the host ids in their tokens, which are those in the lattice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from host_manager.domain.environment import POD_LABEL
from host_manager.domain.secret_changes import SecretChange, is_newer
from host_manager.domain.snapshot import Snapshot
from host_manager.lattice import reports_of
from trellis import names
from trellis.installer_api.parse_int import whole

_SECRETS_MOST: Final = 64
"""Maximum number of Secrets in the annotation; the newest are kept."""


def uses(snapshot: Snapshot, change: SecretChange) -> bool | None:
    """Return whether running hosts of the group received a former version; None while that is unknown."""
    view = snapshot.lattice
    reporting = {report.sighting.host.id for report in reports_of(snapshot).values() if report.sighting is not None}
    if reporting & change.hosts:
        return True
    if view is None:
        return False  # without an address, no host can have requested the Secret
    if view.connected_since is None or not view.settled:
        return None
    if all(pod.reports_pod for pod in snapshot.pods):
        return False
    # Hosts of adopted pods do not report their pod: any host of the lattice may be one of these.
    return any(seen.host.id in change.hosts for seen in view.hosts if POD_LABEL not in seen.host.labels)


def restarted(snapshot: Snapshot, workload: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return the two annotations of the pods: Secrets with versions, and time of the restart; "" each for never.

    ``workload``: the current one.
    """
    restarted_for, at = _versions_of(workload), _annotation(workload, names.ANNOTATION_RESTARTED_AT)
    may = _wants(snapshot) and not _rests(snapshot, at)
    new_changes = [change for change in snapshot.changes if _is_new(change, restarted_for)] if may else []
    due = {entry.secret: entry.version for entry in new_changes if uses(snapshot, entry)}
    newest = sorted((restarted_for | due).items(), key=lambda item: _number(item[1]))[-_SECRETS_MOST:]
    return " ".join(f"{secret}={version}" for secret, version in sorted(newest)), snapshot.now if due else at


def _rests(snapshot: Snapshot, at: str) -> bool:
    """Return whether the last restart for changed Secrets is recent; a time in the future does not count."""
    try:
        ago = (datetime.fromisoformat(snapshot.now) - datetime.fromisoformat(at)).total_seconds()
    except (TypeError, ValueError):  # absent, or invalid
        return False
    return 0 <= ago < snapshot.rest


def over(snapshot: Snapshot, workload: Mapping[str, Any] | None) -> list[SecretChange]:
    """Return the changes that need no action: opted out, not used, or already in the annotation."""
    if not _wants(snapshot):
        return [*snapshot.changes]
    restarted_for = _versions_of(workload)
    return [
        change for change in snapshot.changes if uses(snapshot, change) is False or not _is_new(change, restarted_for)
    ]


def _wants(snapshot: Snapshot) -> bool:
    """Return whether the group is still opted in, as that may have changed since the event."""
    return snapshot.head.restart_on == names.RESTART_ON_CHANGE


def _is_new(change: SecretChange, restarted_for: Mapping[str, str]) -> bool:
    former = restarted_for.get(change.secret)
    return former is None or is_newer(change.version, former)


def _versions_of(workload: Mapping[str, Any] | None) -> dict[str, str]:
    pairs = (item.partition("=") for item in _annotation(workload, names.ANNOTATION_RESTARTED_FOR).split())
    return {secret: version for secret, _, version in pairs if version}


def _annotation(workload: Mapping[str, Any] | None, name: str) -> str:
    template = ((workload or {}).get("spec") or {}).get("template") or {}
    return str(((template.get("metadata") or {}).get("annotations") or {}).get(name) or "")


def _number(version: str) -> int:
    return whole(version) or 0
