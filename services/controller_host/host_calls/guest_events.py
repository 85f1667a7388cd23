"""Records Kubernetes Events of guests, with the permissions of the guest's account.

In: the Event that a guest requested. Out: an Event, or an incremented count. Called by ``calling``. Invariant: repeated
equal Events of a guest about an object are one Event.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from datetime import UTC, datetime
from typing import Final

from controller_host.domain.accounts import Account
from controller_host.domain.calls import GuestEvent
from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, Forbidden, NotFound
from trellis.kube.resources import EVENTS, Manifest

_DEFAULT_NAMESPACE: Final = "default"
_NAME_PART: Final = 200
_NO_NAME = re.compile(r"[^a-z0-9.-]+")


async def record(kube: Kube, account: Account, guest_event: GuestEvent) -> None:
    """Record an Event; for a repeated Event, increment its count if the account is permitted to."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = make_event(account, guest_event, now)
    metadata = event["metadata"]
    with contextlib.suppress(AlreadyExists):
        await kube.create(EVENTS, event, field_manager=account.manager)
        return
    try:
        found = await kube.get(EVENTS, metadata["name"], metadata["namespace"])
        read = {key: found["metadata"][key] for key in ("uid", "resourceVersion")}
        patch = {"metadata": read, "count": int(found.get("count") or 1) + 1, "lastTimestamp": now}
        await kube.merge_patch(EVENTS, metadata["name"], patch, metadata["namespace"], field_manager=account.manager)
    except (Forbidden, NotFound, AlreadyExists):
        return  # the Event exists; only its count is not updated


def make_event(account: Account, guest_event: GuestEvent, now: str) -> Manifest:
    """Return the Event of a first occurrence; ``now`` in RFC 3339. Its name is the same for all repetitions."""
    regarding = guest_event.regarding
    identity = "\0".join((account.controller, *map(str, regarding.values()), guest_event.reason, guest_event.message))
    hashed = hashlib.sha256(identity.encode()).hexdigest()[:16]
    component = account.controller.replace("/", ".")
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {
            "name": f"{_NO_NAME.sub('-', regarding['name'].lower())[:_NAME_PART].strip('.-') or 'object'}.{hashed}",
            "namespace": regarding.get("namespace") or _DEFAULT_NAMESPACE,
        },
        "involvedObject": dict(regarding),
        "type": guest_event.type,
        "reason": guest_event.reason,
        "message": guest_event.message,
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
