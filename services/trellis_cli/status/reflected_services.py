"""Counts the Services of applications: their number, those without endpoints, the leader of service_reflector.

Pure. In: views. Out: counts. Called by ``trellis status``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from trellis.kube.resources import Manifest
from trellis.lattice.domain.service_views import ServiceView, SliceView
from trellis.read_model.explain.service import REFUSED, Warned

_APPLICATION_MESSAGE: Final = re.compile(r"application (?P<name>\S+) of lattice \S+: (?P<why>.*)", re.DOTALL)
"""Messages of service_reflector about an application, in Events on a host group."""


@dataclass(frozen=True, slots=True)
class ReflectedServices:
    """``services``: their number; ``without_endpoints``: those without a ready host.

    ``leader``: "" for none, None if this account may not read it; ``unreached``: applications without a Service, by
    ``namespace/name``, and why.
    """

    services: int = 0
    without_endpoints: list[str] = field(default_factory=list)
    leader: str | None = ""
    unreached: Mapping[str, str] = field(default_factory=dict)


def unreached(
    warnings: Iterable[Warned], services: Iterable[ServiceView], groups: Iterable[Manifest]
) -> dict[str, str]:
    """Return the applications whose Events report why they have no Service, by ``namespace/name``.

    An Event exists for an hour: it is ignored if a Service reflects the application, or its lattice no longer has it.
    """
    with_service = {(service.namespace, service.application) for service in services}
    known = {f"{group['metadata']['namespace']}/{group['metadata']['name']}": _apps(group) for group in groups}
    found: dict[str, str] = {}
    for warning in warnings:
        refused = REFUSED.match(warning.message)
        match = refused or _APPLICATION_MESSAGE.match(warning.message)
        if match is None or warning.group not in known:
            continue
        namespace = refused["namespace"] if refused else warning.group.partition("/")[0]
        name, apps = match["name"], known[warning.group]
        if (namespace, name) not in with_service and (apps is None or name in apps):
            found.setdefault(f"{namespace}/{name}", f"{warning.reason}: {match['why']}")
    return found


def _apps(group: Manifest) -> set[str] | None:
    """Return the applications of the lattice of a group, None if unknown."""
    status = group.get("status") or {}
    known = any(
        condition.get("type") == "ApplicationsKnown" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    return {str(app.get("name")) for app in status.get("apps") or ()} if known else None


def counted(services: Iterable[ServiceView], slices: Iterable[SliceView], leader: str | None) -> ReflectedServices:
    """Return the counts; a Service has endpoints if one of its slices has a ready one."""
    reflected = sorted(service.key for service in services if service.application)
    led = {
        piece.service_key
        for piece in slices
        if any((endpoint.get("conditions") or {}).get("ready") for endpoint in piece.endpoints)
    }
    return ReflectedServices(len(reflected), [key for key in reflected if key not in led], leader)
