"""HTTPRoutes of Services: the gateway that routes to an application.

Pure. In: the target state of a Service, the present route. Out: actions, manifests. Called by ``decide`` and ``apply``.
Invariants: a route belongs to Trellis if it has its label and is owned by the Service, any other route of that name is
left unchanged; changes of the spec by other writers are reverted. Source: gateway.networking.k8s.io/v1 HTTPRoute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from service_reflector.domain.actions import DeleteRoute, WriteRoute
from service_reflector.domain.resources import ReflectedService, owned_by
from trellis import names
from trellis.lattice.domain.manifests import Protocol
from trellis.lattice.domain.service_views import RouteView

Manifest = dict[str, Any]

_EVERY_PATH: Final = [{"path": {"type": "PathPrefix", "value": "/"}}]
_WHERE_TO: Final = frozenset({"hostnames", "matches", "filters", "namespace", "sectionName", "port", "timeouts"})
"""Fields that change the destination or the handling of requests; a field that Trellis did not write is reverted."""


def route_actions(target: ReflectedService, owner: str, found: RouteView | None) -> Iterator[WriteRoute | DeleteRoute]:
    """Yield the actions that bring the route of a Service (``owner``: its UID) to its target state."""
    spec = make_route_spec(target)
    if spec is None:
        if found is not None:
            yield DeleteRoute(found)
    elif found is None or (found.owner, found.applied) != (owner, applied(spec)) or not _matches(found.spec, spec):
        yield WriteRoute(target.name, spec, found)


def make_route_spec(target: ReflectedService) -> Manifest | None:
    """Return the spec of a route, None if none is requested or no port serves HTTP."""
    port = next((listener.port for _, listener in target.ports if listener.protocol is Protocol.HTTP), None)
    if target.options.gateway is None or port is None:
        return None
    namespace, name = target.options.gateway
    parent = {"name": name} | ({"namespace": namespace} if namespace else {})
    rule = {"matches": _EVERY_PATH, "backendRefs": [{"name": target.name, "port": port, "weight": 1}]}
    return {"parentRefs": [parent], "rules": [rule], "hostnames": list(target.options.hostnames) or None}


def _matches(found: object, wanted: object) -> bool:
    """Return whether a present spec matches the written one.

    It may have further fields with defaults.
    """
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping):
            return False
        strange = found.keys() & _WHERE_TO - wanted.keys()
        return not strange and all(_matches(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(found, list | tuple) or len(found) != len(wanted):
            return False
        return all(_matches(item, other) for item, other in zip(found, wanted, strict=True))
    return found == wanted


def applied(spec: Manifest) -> str:
    """Return the digest of a spec, which records the request for which it was written."""
    return names.short_hash(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS).decode())


def make_route(namespace: str, service: str, owner: str, spec: Manifest) -> Manifest:
    """Return an HTTPRoute; ``owner`` is the UID of its Service."""
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_APPLIED: applied(spec)}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {
            "name": service,
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": owned_by(service, owner),
        },
        "spec": spec,
    }
