"""``trellis check``: checks an installation from inside the cluster; `helm test` runs it.

In: flags, pods of the installation, their ``/readyz``, the bus. Out: a table or JSON, and exit status 1 with the
problems on stderr. Called by the command line and the chart. Writes nothing; needs only list of pods in the namespace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import aiohttp
import typer
from rich.text import Text

from trellis.bus.errors import BusError
from trellis.bus.streams.stream_stats import stream_sizes
from trellis.config.durations import parse_seconds
from trellis.config.settings import SettingsError
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.network_errors import network_reason
from trellis.kube.resources import PODS
from trellis_cli.check.model import SELECTOR, Answer, PodView, parts_of, reasons_of, view_pods
from trellis_cli.common.errors import describe_error, exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.messages import EXIT_FAILED, print_error
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import DocumentOption, Format, NoHeadersOption, make_table, print_document, print_result
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.status.row import Part

_POLL_SECONDS: Final = 1.0
_ANSWER: Final = aiohttp.ClientTimeout(total=5.0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The components to check, and the deadline by a monotonic clock. ``services``: empty means all with pods."""

    services: Sequence[str]
    bus: bool
    deadline: float


def check(  # noqa: PLR0913, PLR0917 - options of a command line
    services: Annotated[
        list[str] | None,
        typer.Argument(metavar="SERVICE", help="services that must be ready; default: all that have pods"),
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="time to wait until everything is ready")] = "0s",
    bus: Annotated[bool, typer.Option("--bus/--no-bus", help="check the bus too")] = True,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Check that the services and the bus are ready.

    Each pod is requested at its own address, so the command works inside the cluster; use `trellis status` outside.
    `helm test` runs it. Ends with 1 if a component is not ready. JSON: `{"ok", "parts": [{"part", "ok", "problem",
    …}]}`.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        try:
            seconds = parse_seconds(timeout)
        except ValueError as error:
            raise SettingsError(f"--timeout: has {timeout!r}, {error}") from None
        parts = asyncio.run(_wait(settings, Wanted(services or (), bus, time.monotonic() + seconds)))
        _show(parts, output, no_headers=no_headers)
        if unhealthy := [part for part in parts if part.problem]:
            print_error("; ".join(f"{part.name}: {part.problem}" for part in unhealthy))
            raise SystemExit(EXIT_FAILED)


async def _wait(settings: ClientSettings, wanted: Wanted) -> list[Part]:
    """Check repeatedly until everything is Healthy or the timeout expires."""
    async with connected(settings) as kube:
        while True:
            parts = await _look(kube, settings, wanted)
            if not any(part.problem for part in parts) or time.monotonic() >= wanted.deadline:
                return parts
            await asyncio.sleep(_POLL_SECONDS)


async def _look(kube: Kube, settings: ClientSettings, wanted: Wanted) -> list[Part]:
    checks: list[Awaitable[list[Part]]] = [_services(kube, settings.namespace, wanted.services)]
    if wanted.bus:
        checks.append(_bus(settings))
    return [part for parts in await asyncio.gather(*checks) for part in parts]


async def _services(kube: Kube, namespace: str, wanted: Sequence[str]) -> list[Part]:
    try:
        pods = await kube.list(PODS, namespace, label_selector=SELECTOR)
    except KubeError as error:
        return [Part("kubernetes", "unknown", describe_error(error), {"name": "kubernetes"})]
    async with aiohttp.ClientSession(timeout=_ANSWER) as session:
        answers = await asyncio.gather(*(_ask(session, pod) for pod in view_pods(pods.items)))
    return [Part("kubernetes", kube.server, data={"name": "kubernetes"}), *parts_of(wanted, answers)]


async def _ask(session: aiohttp.ClientSession, pod: PodView) -> Answer:
    if not pod.url:
        return Answer(pod, pod.waits or "the container is not running yet")
    try:
        async with session.get(pod.url) as answer:
            return Answer(pod, reasons_of(await answer.json(content_type=None), answer.status))
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        reason = pod.waits or network_reason(error)
        return Answer(pod, f"{pod.url} unreachable: {reason}")


async def _bus(settings: ClientSettings) -> list[Part]:
    try:
        streams = await stream_sizes(settings.nats_url, settings.nats_credentials)
    except BusError as error:
        return [Part("bus", "unknown", describe_error(error), {"name": "bus"})]
    missing = [stream.name for stream in streams if stream.messages is None]
    problem = f"missing streams: {', '.join(missing)}; a running service creates them within seconds" if missing else ""
    return [Part("bus", f"{len(streams) - len(missing)} streams", problem, {"name": "bus"})]


def _show(parts: Sequence[Part], output: Format, *, no_headers: bool) -> None:
    if output.structured:
        documents = [{"part": part.name} | part.document() for part in parts]
        print_document(output, {"ok": not any(part.problem for part in parts), "parts": documents})
        return
    table = make_table("PART", "OK", "STATUS", fold={"STATUS"})
    for part in parts:
        ok = Text("no", style="bold red") if part.problem else Text("yes", style="green")
        table.add_row(part.name, ok, Text("; ".join(filter(None, (part.text, part.problem)))))
    print_result(table, no_headers=no_headers)
