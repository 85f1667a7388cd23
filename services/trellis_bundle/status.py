"""``trellis status``: who leads, how the rollout stands, whether the bus and the API server are there.

In: flags. Out: a table or JSON, and exit status 1 if something is wrong. Called by the command line. Writes nothing.
Invariant: each part is asked by itself; one that cannot be reached is a row that says so, the others are shown.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from trellis.bus.errors import BusError
from trellis.bus.survey import StreamCount, survey
from trellis.events.subjects import NODE_WATCHER, PROVISIONER, STREAM_DEAD
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError, NotFound, Unavailable
from trellis_bundle.apps_status import NAME, UNKNOWN, read_applications
from trellis_bundle.breaker import read_rows
from trellis_bundle.breaker_model import BreakerRow, Position
from trellis_bundle.cli_errors import EXIT_FAILED, exit_on_error, explain
from trellis_bundle.controllers import read_controllers
from trellis_bundle.controllers_model import PART as CONTROLLERS
from trellis_bundle.controllers_model import UNKNOWN as CONTROLLERS_UNKNOWN
from trellis_bundle.gather import Leadership, Rollout, connected, read_leadership, read_rollout, read_version
from trellis_bundle.mirrors import REFLECTOR, Mirrors, read_mirrors
from trellis_bundle.nodes import ContextOption, KubeconfigOption
from trellis_bundle.output import Format, OutputOption, console, print_json
from trellis_bundle.part import Led, Part, Unwell, led_part
from trellis_bundle.read_model import NodeState, summary, tally
from trellis_bundle.settings import ClientSettings, client_settings

LED: Final = tuple(name.replace("_", "-") for name in (NODE_WATCHER, PROVISIONER))
AWAY: Final = "not known while the API server does not answer"
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Status:
    """All parts, in the order they are shown."""

    kubernetes: Part
    services: tuple[Part, ...]
    rollout: Part
    breakers: Part
    applications: Part
    mirrors: Part
    controllers: Part
    bus: Part

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every row."""
        shown = (self.rollout, self.breakers, self.applications, self.mirrors, self.controllers, self.bus)
        return (self.kubernetes, *self.services, *shown)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong anywhere."""
        return not any(part.problem for part in self.parts)

    def document(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "ok": self.ok,
            "kubernetes": self.kubernetes.document(),
            "services": [part.document() for part in self.services],
            "rollout": self.rollout.document(),
            "breakers": self.breakers.document(),
            "applications": self.applications.document(),
            "mirrors": self.mirrors.document(),
            "controllers": self.controllers.document(),
            "bus": self.bus.document(),
        }


def status(
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    nats_url: Annotated[str | None, typer.Option(help="the bus [env: TRELLIS_NATS_URL]")] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show who leads each service, how the rollout stands, and whether the API server and the bus are there.

    Ends with 1 if something is wrong. JSON: `ok`; `kubernetes {ok, problem, server, version}`; `services [{ok,
    problem, name, holder, renewed_seconds_ago}]`; `rollout {ok, problem, in_work, halted, counts}`; `breakers {ok,
    problem, open [rows of breaker status]}`; `applications {ok, problem, count, phases, not_well [namespace/name],
    holder}`; `mirrors {ok, problem, services, without_endpoints [namespace/name],
    holder}`, the Services of applications; `controllers {ok, problem, count, states, not_ready [namespace/name],
    holder}`, those in Wasm; `bus {ok, problem, streams [{name, messages, bytes}], dead_letters}`. What
    could not be read is null.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context, nats_url=nats_url)
        found = asyncio.run(_look(settings))
        _show(found, output)
        if not found.ok:
            raise SystemExit(EXIT_FAILED)


async def _look(settings: ClientSettings) -> Status:
    """Ask all parts at once."""
    async with connected(settings) as kube:
        now = datetime.now(UTC)
        kubernetes, rollout, breakers, applications, mirrors, controllers, bus, *services = await asyncio.gather(
            _kubernetes(kube),
            _rollout(kube, settings),
            _breakers(kube, settings.namespace),
            _applications(kube, settings.namespace),
            _mirrors(kube, settings.namespace),
            _controllers(kube, settings.namespace),
            _bus(settings),
            *(_service(kube, name, settings.namespace, now) for name in LED),
        )
    return Status(kubernetes, tuple(services), rollout, breakers, applications, mirrors, controllers, bus)


async def _kubernetes(kube: Kube) -> Part:
    facts: dict[str, Any] = {"server": kube.server, "version": None}
    try:
        version = await read_version(kube)
    except KubeError as error:
        return Part("kubernetes", kube.server, explain(error), facts)
    return Part("kubernetes", f"{version} at {kube.server}", facts=facts | {"version": version})


async def _service(kube: Kube, name: str, namespace: str, now: datetime) -> Part:
    try:
        return service_part(name, await read_leadership(kube, name, namespace, now))
    except NotFound:
        return service_part(name, None)
    except Unavailable:
        return _unknown_service(name, AWAY)
    except KubeError as error:
        return _unknown_service(name, explain(error))


def service_part(name: str, lead: Leadership | None) -> Part:
    """Return the row of a service; ``lead`` None means that it never led."""
    if lead is None or not lead.holder:
        never = "never ran here" if lead is None else "was stopped"
        return _unknown_service(name, f"nobody leads, it {never}: start it with `trellis run {name}`")
    age = round(lead.age, 1) if lead.age is not None else None
    facts = {"name": name, "holder": lead.holder, "renewed_seconds_ago": age}
    text = f"led by {lead.holder}, renewed {age} s ago"
    if age is None or age > lead.duration:
        return Part(name, text, "the leader does not renew its lease: has it crashed? another one takes over", facts)
    return Part(name, text, facts=facts)


def _unknown_service(name: str, problem: str) -> Part:
    return Part(name, "no leader", problem, {"name": name, "holder": None, "renewed_seconds_ago": None})


async def _rollout(kube: Kube, settings: ClientSettings) -> Part:
    try:
        return rollout_part(await read_rollout(kube, settings))
    except KubeError as error:
        problem = AWAY if isinstance(error, Unavailable) else explain(error)
        return Part("rollout", "not known", problem, {"in_work": None, "halted": None, "counts": None})


def rollout_part(rollout: Rollout) -> Part:
    """Return the row of the rollout; halted, failed nodes and invalid annotations are problems."""
    counts = tally(rollout.rows)
    halted = rollout.ledger.halted
    problems = list(rollout.notes)
    if halted:
        problems.append(f"the rollout of {halted} is halted, too many nodes fail: see `trellis nodes`")
    elif counts[NodeState.FAILED]:
        problems.append(f"{counts[NodeState.FAILED]} failed, each is tried again: see `trellis nodes`")
    if counts[NodeState.INVALID_ANNOTATION]:
        problems.append(f"{counts[NodeState.INVALID_ANNOTATION]} with an invalid annotation: see `trellis nodes`")
    in_work = len(rollout.ledger.entries)
    text = f"{in_work} in work{', halted' if halted else ''}; {summary(rollout.rows)}"
    facts = {
        "in_work": in_work,
        "halted": halted,
        "counts": {state.value: count for state, count in counts.items()},
    }
    return Part("rollout", text, "; ".join(problems), facts)


async def _breakers(kube: Kube, namespace: str) -> Part:
    try:
        return breakers_part(await read_rows(kube, namespace))
    except KubeError as error:
        problem = AWAY if isinstance(error, Unavailable) else explain(error)
        return Part("breakers", "not known", problem, {"open": None})


def breakers_part(rows: list[BreakerRow]) -> Part:
    """Return the row of the breakers; one that holds destructions is a problem."""
    shown = [row for row in rows if row.position is not Position.CLOSED]
    problems = [f"{row.service} holds {row.held} {row.kind}: see `trellis breaker status`" for row in shown]
    text = f"{len(shown)} of {len(rows)} open" if shown else "closed"
    return Part("breakers", text, "; ".join(problems), {"open": [row.document() for row in shown]})


async def _applications(kube: Kube, namespace: str) -> Part:
    try:
        return await read_applications(kube, namespace)
    except KubeError as error:
        problem = AWAY if isinstance(error, Unavailable) else explain(error)
        return Part(NAME, "not known", problem, dict(UNKNOWN))


async def _mirrors(kube: Kube, namespace: str) -> Part:
    try:
        return mirrors_part(await read_mirrors(kube, namespace))
    except KubeError as error:
        problem = AWAY if isinstance(error, Unavailable) else explain(error)
        facts = {"services": None, "without_endpoints": None, "holder": None}
        return Part("mirrors", "not known", problem, facts)


async def _controllers(kube: Kube, namespace: str) -> Part:
    try:
        return await read_controllers(kube, namespace)
    except KubeError as error:
        problem = AWAY if isinstance(error, Unavailable) else explain(error)
        return Part(CONTROLLERS, "not known", problem, dict(CONTROLLERS_UNKNOWN))


def mirrors_part(found: Mirrors) -> Part:
    """Return the row of applications' Services; one that leads nowhere is a problem, as is one that nobody follows."""
    without = found.without_endpoints
    text = f"{found.services} Services, {len(without)} without endpoints" if found.services else ""
    led = Led(REFLECTOR, found.leader, "endpoints do not follow")
    facts = {"services": found.services, "without_endpoints": without}
    return led_part("mirrors", text, led, Unwell("no endpoint", without, "trellis explain service/NAME"), facts)


async def _bus(settings: ClientSettings) -> Part:
    try:
        return bus_part(await survey(settings.nats_url, settings.nats_credentials))
    except BusError as error:
        return Part("bus", "not known", explain(error), {"streams": None, "dead_letters": None})


def bus_part(streams: list[StreamCount]) -> Part:
    """Return the row of the bus; a missing stream and dead letters are problems."""
    missing = [stream.name for stream in streams if stream.messages is None]
    dead = next((stream.messages or 0 for stream in streams if stream.name == STREAM_DEAD), 0)
    problems = []
    if missing:
        problems.append(f"no stream {', '.join(missing)}: a running service makes it within seconds")
    if dead:
        problems.append(f"{dead} dead letters in {STREAM_DEAD}: `trellis dead list` says why they were given up on")
    text = ", ".join(
        f"{stream.name} {stream.messages} messages {(stream.size or 0) / _MIB:.1f} MiB"
        for stream in streams
        if stream.messages is not None
    )
    facts = {
        "streams": [{"name": stream.name, "messages": stream.messages, "bytes": stream.size} for stream in streams],
        "dead_letters": dead,
    }
    return Part("bus", text or "connected", "; ".join(problems), facts)


def _show(found: Status, output: Format) -> None:
    if output is Format.JSON:
        print_json(found.document())
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("PART", no_wrap=True)
    table.add_column("OK", no_wrap=True)
    table.add_column("STATUS", overflow="fold")
    for part in found.parts:
        mark = Text("no", style="bold red") if part.problem else Text("yes", style="green")
        table.add_row(part.name, mark, Text("\n".join(filter(None, (part.text, part.problem)))))
    console().print(table)
