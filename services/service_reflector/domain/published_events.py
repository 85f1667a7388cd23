"""Decides about the events of a Service.

Pure. Called by ``app``. Invariant: an event is published whenever its state holds and it is not known to be published.
"""

from __future__ import annotations

from service_reflector.domain.resources import ReflectedService
from trellis.events.services import ServiceReflected, ServiceRemoved
from trellis.lattice.domain.group_views import lattice_name
from trellis.lattice.domain.service_views import ServiceView


def reflected(target: ReflectedService, service: ServiceView) -> ServiceReflected:
    """Return the event of a Service that has its target state."""
    return ServiceReflected(
        namespace=target.namespace,
        name=target.name,
        uid=service.uid,
        lattice=lattice_name(target.lattice),
        application=target.application,
        deployed=target.version,
        ports=[listener.port for _, listener in target.ports],
    )


def stored(event: ServiceReflected) -> bytes:
    """Return an event for the cache, as JSON: its model would need six times the memory."""
    return event.model_dump_json().encode()


def removed(former: bytes) -> ServiceRemoved:
    """Return the event of a Service that was deleted, from its cached event."""
    published = ServiceReflected.model_validate_json(former)
    return ServiceRemoved(
        namespace=published.namespace,
        name=published.name,
        uid=published.uid,
        lattice=published.lattice,
        application=published.application,
    )
