"""Parses the service options in the annotations of an application: type, labels, namespace.

Pure. In: an application. Out: options, and invalid values. Called by ``gather`` and ``decide``. Invariant: an invalid
value keeps the default and is reported; it does not prevent the Service. docs/services/service-reflector.md has the
table of annotations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trellis import names
from trellis.lattice.domain.manifests import Application, Unreachable

_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer")
_AFFINITIES: Final = ("None", "ClientIP")
_NO: Final = "false"


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Requested options. ``gateway``: namespace ("" for that of the Service) and name, None for no route."""

    wanted: bool = True
    namespace: str = ""
    type: str = _TYPES[0]
    affinity: str = _AFFINITIES[0]
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    gateway: tuple[str, str] | None = None
    hostnames: tuple[str, ...] = ()
    problems: tuple[Unreachable, ...] = ()


def options_of(application: Application) -> ServiceOptions:
    """Return the options that an application requests."""
    given = dict(application.annotations)
    problems: list[Unreachable] = []

    def choice(name: str, allowed: tuple[str, ...]) -> str:
        value = given.get(name, "")
        if value and value not in allowed:
            message = f"annotation {name} has {value!r}, needs one of {', '.join(allowed)}; {allowed[0]} is used"
            problems.append(Unreachable("", "InvalidAnnotation", message))
        return value if value in allowed else allowed[0]

    gateway = given.get(names.ANNOTATION_SERVICE_GATEWAY, "").strip()
    place, _, name = gateway.rpartition("/")
    hostnames = given.get(names.ANNOTATION_SERVICE_HOSTNAMES, "").split(",")
    return ServiceOptions(
        wanted=given.get(names.ANNOTATION_SERVICE, "").lower() != _NO,
        namespace=given.get(names.ANNOTATION_SERVICE_NAMESPACE, "").strip(),
        type=choice(names.ANNOTATION_SERVICE_TYPE, _TYPES),
        affinity=choice(names.ANNOTATION_SERVICE_AFFINITY, _AFFINITIES),
        labels=_under(names.SERVICE_LABEL_PREFIX, given),
        annotations=_under(names.SERVICE_ANNOTATION_PREFIX, given),
        gateway=(place, name) if gateway else None,
        hostnames=tuple(filter(None, map(str.strip, hostnames))),
        problems=tuple(problems),
    )


def _under(prefix: str, given: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the entries with a prefix: ``<prefix><key>``, where a ``/`` of the key is written as ``__``."""
    found = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
    return tuple(sorted((key.replace("__", "/"), value) for key, value in found.items() if key))
