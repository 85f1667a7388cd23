"""The listeners of an application and their hosts, cached on its Service.

Pure. In: listeners. Out: text of an annotation, and back. Written by ``service_reflector``, read by ``trellis
explain``. Rule: while a lattice is unknown its Services stay, and route to the current hosts.
"""

from __future__ import annotations

from typing import Any

import orjson

from trellis.lattice.domain.addresses import Family, read_port
from trellis.lattice.domain.hosts import Sighting
from trellis.lattice.domain.manifests import Listener, Protocol
from trellis.lattice.domain.service_views import PodView


def write_cached_listeners(listeners: tuple[Listener, ...]) -> str:
    """Return the annotation for listeners."""
    return orjson.dumps([_plain(listener) for listener in listeners]).decode()


def read_cached_listeners(text: str) -> tuple[Listener, ...]:
    """Return the listeners of an annotation, empty if it is invalid, because a user may have edited it."""
    try:
        return tuple(_listener(load) for load in orjson.loads(text or "[]"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()


def meets(listener: Listener, pod: PodView, seen: Sighting | None) -> bool:
    """Return whether a host has the labels that the scaler of a port requires; ``seen``: description by the host."""
    labels = dict(pod.labels) | (dict(seen.host.labels) if seen is not None else {})
    return any(all(labels.get(key) == value for key, value in each) for each in listener.requirements)


def _plain(listener: Listener) -> dict[str, Any]:
    return {
        "component": listener.component,
        "port": listener.port,
        "protocol": listener.protocol.value,
        "family": listener.family.value,
        "hosts": [dict(labels) for labels in listener.requirements],
        "providers": list(listener.providers),
    }


def _listener(found: dict[str, Any]) -> Listener:
    return Listener(
        component=str(found["component"]),
        port=read_port(str(found["port"]), "the annotation"),
        protocol=Protocol(found["protocol"]),
        family=Family(found["family"]),
        requirements=tuple(
            tuple(sorted((str(key), str(value)) for key, value in labels.items())) for labels in found["hosts"]
        ),
        providers=tuple(map(str, found["providers"])),
    )
