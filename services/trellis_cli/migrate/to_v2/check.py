"""Requests the routes of applications on wasmCloud v1 and v2, and compares the answers.

In: conversions, Services and EndpointSlices. Out: comparisons. Called by ``to_v2.command``; writes nothing.
Invariants: each route is requested once on each side, by GET, with the Host header of v2; the command ends within its
total time, and a route that was not requested in time is a difference; the size of a read body is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import aiohttp

from trellis.kube.client import Kube
from trellis.kube.network_errors import network_reason
from trellis.kube.resources import ENDPOINT_SLICES, Manifest
from trellis.lattice.domain.service_views import ServiceView
from trellis_cli.migrate.model.to_v2.comparison import COMPARED, PORT_OF_V2, Answer, Comparison, address_in, port_name
from trellis_cli.migrate.model.to_v2.report import Conversion, Route


@dataclass(frozen=True, slots=True)
class CheckTimings:
    """Limits of a check. ``answer``: seconds for one request; ``total``: seconds for all; ``most``: bytes of a body."""

    answer: float = 10.0
    total: float = 120.0
    at_once: int = 8
    most: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Side:
    """One request. ``missing``: why there is no address."""

    address: str
    missing: str


async def check(
    kube: Kube,
    conversions: Sequence[Conversion],
    services: Sequence[ServiceView],
    path: str,
    timings: CheckTimings = CheckTimings(),
) -> list[Comparison]:
    """Return the comparison of each route.

    Raises:
        KubeError: the EndpointSlices cannot be read.
    """
    namespaces = sorted({item.namespace for item in conversions if item.routes})
    listings = await asyncio.gather(*(kube.list(ENDPOINT_SLICES, namespace) for namespace in namespaces))
    slices = [item for listing in listings for item in listing.items]
    wanted = [(conversion, route) for conversion in conversions for route in conversion.routes]
    late = Answer(problem=f"not requested within {timings.total:g} s")
    found = [Comparison(conversion.key, route.host, path, late, late) for conversion, route in wanted]
    gate = asyncio.Semaphore(timings.at_once)

    async def compare(at: int, conversion: Conversion, route: Route) -> None:
        async with gate:
            sides = _v1(conversion, route, services, slices), _v2(conversion, route, slices)
            one, other = await asyncio.gather(*(_ask(session, side, route.host, path, timings) for side in sides))
        found[at] = replace(found[at], v1=one, v2=other)

    timeout = aiohttp.ClientTimeout(total=timings.answer, connect=timings.answer / 2)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
        try:
            async with asyncio.timeout(timings.total), asyncio.TaskGroup() as tasks:
                for at, (conversion, route) in enumerate(wanted):
                    tasks.create_task(compare(at, conversion, route))
        except TimeoutError:
            pass  # the remaining routes have `late` as answers
    return found


def _v1(conversion: Conversion, route: Route, services: Sequence[ServiceView], slices: Sequence[Manifest]) -> Side:
    """Return the endpoint of the port of the reflected Service that a route replaces.

    A Service in another namespace can be that of another tenant.
    """
    wanted = (conversion.namespace, conversion.application)
    found = [item for item in services if (item.namespace, item.application) == wanted]
    if not found:
        return Side("", f"no Service of namespace {conversion.namespace} reflects the application")
    service = found[0]
    there = [item for item in slices if item["metadata"]["namespace"] == service.namespace]
    port = port_name(service.manifest(), route.port)
    if not port:
        return Side("", f"Service {service.key} has no port {route.port}")
    address = address_in(there, service.name, port, v2=False)
    return Side(address, f"Service {service.key} has no ready endpoint for port {route.port}")


def _v2(conversion: Conversion, route: Route, slices: Sequence[Manifest]) -> Side:
    """Return the endpoint that v2 wrote for its Service."""
    if not route.service:
        return Side("", "the application has no Service on v2")
    there = [item for item in slices if item["metadata"]["namespace"] == conversion.namespace]
    missing = f"Service {conversion.namespace}/{route.service} has no ready endpoint of v2"
    return Side(address_in(there, route.service, PORT_OF_V2, v2=True), missing)


async def _ask(session: aiohttp.ClientSession, side: Side, host: str, path: str, timings: CheckTimings) -> Answer:
    if not side.address:
        return Answer(problem=side.missing)
    url = f"http://{side.address}{path}"
    try:
        headers = {"Host": host, "Accept-Encoding": "identity"}
        async with session.get(url, headers=headers, allow_redirects=False) as answer:
            body = await _read(answer.content, timings.most)
            whole = len(body) <= timings.most
            compared = tuple(answer.headers.get(name, "") for name in COMPARED)
            return Answer(side.address, answer.status, body[: timings.most], whole, headers=compared)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return Answer(side.address, problem=_problem(side.address, error, timings))


def _problem(address: str, error: Exception, timings: CheckTimings) -> str:
    """Return why there is no answer. Errors of the parser contain the answer, which can contain a token."""
    match error:
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return f"{address} unreachable: {network_reason(error)}; run the command inside the cluster"
        case TimeoutError():
            return f"{address} sent no complete answer within {timings.answer:g} s"
        case aiohttp.ClientResponseError():
            return f"{address} sent no valid HTTP answer"
        case _:
            return f"{address}: {network_reason(error)}"


async def _read(content: aiohttp.StreamReader, most: int) -> bytes:
    """Return at most one byte more than ``most``."""
    body = b""
    while len(body) <= most and (chunk := await content.read(most + 1 - len(body))):
        body += chunk
    return body
