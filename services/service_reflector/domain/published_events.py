"""Decides about the events of a Service.

Pure. Called by ``app``. Invariant: an event is published whenever its state holds and it is not known to be published.
"""

from __future__ import annotations

from service_reflector.domain.resources import Mirror
from trellis.events.services import ServiceReflected, ServiceRemoved
from trellis.lattice.domain.group_views import lattice_name
from trellis.lattice.domain.service_views import ServiceView


def reflected(mirror: Mirror, service: ServiceView) -> ServiceReflected:
    """Return the event of a Service that has its target state."""
    return ServiceReflected(
        namespace=mirror.namespace,
        name=mirror.name,
        uid=service.uid,
        lattice=lattice_name(mirror.lattice),
        application=mirror.application,
        deployed=mirror.version,
        ports=[listener.port for _, listener in mirror.ports],
    )


def removed(published: ServiceReflected) -> ServiceRemoved:
    """Return the event of a Service that was deleted."""
    return ServiceRemoved(
        namespace=published.namespace,
        name=published.name,
        uid=published.uid,
        lattice=published.lattice,
        application=published.application,
    )
