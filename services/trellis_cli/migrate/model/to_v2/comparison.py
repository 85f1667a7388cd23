"""Compares the answers of an application on wasmCloud v1 and v2.

Pure. In: Services, EndpointSlices, answers. Out: addresses to request, differences. Called by ``to_v2.check``.
Source: EndpointSlices of v2 have the label ``wasmcloud.dev/route-manager=true``, those of service_reflector its
``managed-by`` label; an endpoint without a ready condition counts as ready (discovery.k8s.io/v1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from trellis import names

ROUTE_MANAGER: Final = "wasmcloud.dev/route-manager"
"""Label of the EndpointSlices of v2."""
COMPARED: Final = ("Content-Type", "Content-Encoding", "Location")
"""Headers that change the meaning of an answer. Their values are not shown: a Location can contain a token."""
PORT_OF_V2: Final = "http"
"""Name of the only port of the EndpointSlices of v2."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer.

    ``problem``: "" if there is one; ``headers``: values of ``COMPARED``; ``body``: at most the read limit, ``whole``:
    all of it was read.
    """

    address: str = ""
    status: int = 0
    body: bytes = b""
    whole: bool = True
    problem: str = ""
    headers: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the answer for JSON, without its body."""
        if self.problem:
            return {"address": self.address or None, "problem": self.problem}
        return {"address": self.address, "status": self.status, "bytes": len(self.body)}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both answers for a route of an application."""

    application: str
    host: str
    path: str
    v1: Answer
    v2: Answer

    @property
    def difference(self) -> str:
        """The difference, "" if status, compared headers and body are equal, and come from the application."""
        problems = [f"{side}: {found.problem}" for side, found in (("v1", self.v1), ("v2", self.v2)) if found.problem]
        if problems:
            return "; ".join(problems)
        if self.v1.status != self.v2.status:
            return f"status {self.v1.status} on v1, {self.v2.status} on v2"
        if self.v1.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return f"status {self.v1.status} on both: neither side shows how it answers"
        if self.v1.status == HTTPStatus.NOT_FOUND and not self.v1.body and not self.v2.body:
            return (
                "status 404 without a body on both: hosts of v2 answer so if no workload has the Host header; choose a "
                "path that exists"
            )
        pairs = zip(COMPARED, self.v1.headers, self.v2.headers, strict=False)
        if unequal := [name for name, one, other in pairs if one != other]:
            return f"headers differ: {', '.join(unequal)}"
        if self.v1.body != self.v2.body:
            return f"bodies differ from byte {_first_difference(self.v1.body, self.v2.body)}"
        if not (self.v1.whole and self.v2.whole):
            return f"bodies are equal in their first {len(self.v1.body)} bytes, and the rest was not read"
        return ""

    def document(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return {
            "application": self.application,
            "host": self.host,
            "path": self.path,
            "v1": self.v1.document(),
            "v2": self.v2.document(),
            "difference": self.difference or None,
        }


def _first_difference(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (first, second) in pairs if first != second), min(len(one), len(other)))


def port_name(service: Mapping[str, Any], number: int) -> str:
    """Return the name of a port of a Service, which its EndpointSlices have too; "" if it has no such port."""
    ports = (service.get("spec") or {}).get("ports") or ()
    return next((str(port.get("name") or "") for port in ports if port.get("port") == number), "")


def address_in(slices: Iterable[Mapping[str, Any]], service: str, name: str, *, v2: bool) -> str:
    """Return ``address:port`` of the first ready endpoint of a Service on one side, "" if it has none.

    ``name``: of the port.
    """
    for item in sorted(slices, key=lambda found: str(found["metadata"]["name"])):
        labels: Mapping[str, str] = item["metadata"].get("labels") or {}
        of_v2 = labels.get(ROUTE_MANAGER) == names.TRUE
        of_v1 = labels.get(names.LABEL_SLICE_MANAGED_BY) == names.SLICE_MANAGED_BY
        if labels.get(names.LABEL_SERVICE_NAME) != service or not (of_v2 if v2 else of_v1):
            continue
        port = next((port.get("port") for port in item.get("ports") or () if port.get("name") == name), None)
        addresses = [
            address
            for endpoint in item.get("endpoints") or ()
            if (endpoint.get("conditions") or {}).get("ready") is not False
            for address in endpoint.get("addresses") or ()
        ]
        if port and addresses:
            return f"[{addresses[0]}]:{port}" if ":" in addresses[0] else f"{addresses[0]}:{port}"
    return ""
