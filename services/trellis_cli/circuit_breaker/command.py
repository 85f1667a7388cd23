"""``trellis circuit-breaker``: show paused deletions, and permit them.

In: flags. Out: a table or JSON; ``close`` writes the record of one service. Called by the command line.
Invariant: a record that changed between read and write is re-read, so that no opening is lost.
"""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from trellis.config.durations import parse_seconds
from trellis.config.settings import SettingsError
from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from trellis.kube.resources import CONFIGMAPS, Resource
from trellis.limits.breaker import State, close, moment, settled, unreadable
from trellis.limits.breaker_record import make_breakers, read_breakers
from trellis.names import circuit_breaker_name
from trellis.services import SERVICES
from trellis_cli.circuit_breaker.model import LIMITS, BreakerRow, Position, row_of, rows_of
from trellis_cli.common.complete import complete_word
from trellis_cli.common.errors import exit_on_error
from trellis_cli.common.gather import connected, read_cluster
from trellis_cli.common.messages import EXIT_FAILED
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import DocumentOption, Format, NoHeadersOption, make_table, print_document, print_result
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.common.watch import Listed, Shown, View, WatchEventsOption, WatchOption, is_watch, watch_cluster

KINDS: Final = {service.name: service.guards for service in SERVICES.values() if service.guards}
_STYLES: Final = {Position.CLOSED: "green", Position.OPEN: "bold red", Position.UNREADABLE: "bold red"}
_WHO_AM_I: Final = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
_LONGEST_LEAVE_SECONDS: Final = 86_400.0
_TRIES: Final = 10
_NONE: Final = "-"

app = typer.Typer(help="Show paused deletions, and permit them.", no_args_is_help=True)


@app.command()
def status(
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
    watch: WatchOption = False,
    output_watch_events: WatchEventsOption = False,
) -> None:
    """List the circuit breakers: state, time, paused deletions, reason and resolution.

    A circuit breaker opens if a service is about to delete more than 5 objects, and more than 10 % of their kind,
    within 60 s. Ends with 1 if one is open. JSON: `{"ok", "circuit_breakers": [{"service", "kind", "state", "since",
    "until", "paused", "examples", "reason", "closed": {"by", "at"}, "permitted": {"deletions", "until"}}]}`. `state` is
    Closed, Open or Unreadable; `paused` counts paused deletions, `closed` is the last closing by a user, `permitted`
    the deletions that it permits now: Paused or Everything.
    """
    with exit_on_error():
        watched = is_watch(watch=watch, events=output_watch_events)
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        if watched:
            asyncio.run(_watch(settings, Shown(output, no_headers, output_watch_events)))
            return
        rows = asyncio.run(read_cluster(settings, lambda kube: read_rows(kube, settings.namespace)))
        _show(rows, output, no_headers=no_headers)
        if any(row.position is not Position.CLOSED for row in rows):
            raise SystemExit(EXIT_FAILED)


@app.command("close")
def close_command(
    service: Annotated[
        str,
        typer.Argument(
            help="service, as in `circuit-breaker status`: node-watcher, host-manager, …",
            autocompletion=complete_word(KINDS),
        ),
    ],
    kind: Annotated[
        str | None, typer.Argument(help="kind, as in `circuit-breaker status`; default: all kinds of the service")
    ] = None,
    everything_for: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="DURATION", help="also permit deletions that are not paused yet, for this time: 15m"
        ),
    ] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Permit the paused deletions, and only these: later ones are limited as before.

    With --for all deletions of the kind are permitted for this time; given before a planned mass deletion, the
    circuit breaker does not open. The user is recorded. A circuit breaker that is not open is not changed. JSON:
    `{"closed": [row…]}`, rows as in `circuit-breaker status`.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        kinds = _chosen(service, kind)
        rows = asyncio.run(_close(settings, service, kinds, _leave_seconds(everything_for)))
        if output.structured:
            print_document(output, {"closed": [row.document() for row in rows]})
            return
        for row in rows:
            print_result(Text(_closing_text(row)))
        if not rows:
            print_result(Text(f"no circuit breaker of {service} is open"))


def _chosen(service: str, kind: str | None) -> tuple[str, ...]:
    if service not in KINDS:
        raise SettingsError(f"SERVICE: has {service!r}, needs one of: {', '.join(KINDS)}")
    if kind is None:
        return KINDS[service]
    if kind not in KINDS[service]:
        raise SettingsError(f"KIND: has {kind!r}, needs one of: {', '.join(KINDS[service])}")
    return (kind,)


def _leave_seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise SettingsError(f"--for: has {text!r}, {error}") from None
    if not 0 < seconds <= _LONGEST_LEAVE_SECONDS:
        raise SettingsError(f"--for: has {text!r}, needs more than 0 and at most 1d")
    return seconds


async def _watch(settings: ClientSettings, shown: Shown) -> None:
    async def read(kube: Kube) -> Listed[BreakerRow]:
        return Listed(await read_rows(kube, settings.namespace))

    view: View[BreakerRow] = View(
        key=lambda row: (row.service, row.kind), table=_table_of, document=BreakerRow.document, named=2
    )
    await watch_cluster(settings, read, view, shown)


async def read_rows(kube: Kube, namespace: str) -> list[BreakerRow]:
    """Return the row of every circuit breaker; no record means Closed. Raise KubeError if a record cannot be read."""
    found = await asyncio.gather(*(_record(kube, service, namespace) for service in KINDS))
    records = {service: record for service, (record, _) in zip(KINDS, found, strict=True)}
    return rows_of(KINDS, records, time.time())


async def _record(kube: Kube, service: str, namespace: str) -> tuple[dict[str, State | None], str | None]:
    """Return the states in the record of a service and its resourceVersion, None if there is none."""
    try:
        manifest = await kube.get(CONFIGMAPS, circuit_breaker_name(service), namespace)
    except NotFound:
        return {}, None
    return read_breakers(manifest), manifest["metadata"]["resourceVersion"]


async def _close(
    settings: ClientSettings, service: str, kinds: Sequence[str], everything_for: float | None
) -> list[BreakerRow]:
    """Close open circuit breakers (with ``everything_for`` all) and return the rows of the closed ones."""
    async with connected(settings) as kube:
        by = await read_user(kube)
        for left in reversed(range(_TRIES)):
            record, version = await _record(kube, service, settings.namespace)
            now = time.time()
            states = {kind: unreadable(now, LIMITS) if state is None else state for kind, state in record.items()}
            closed = []
            for kind in kinds:
                state = settled(states.get(kind, State()), now, LIMITS)
                if state.opening is None and everything_for is None:
                    continue
                states[kind] = close(state, by=by, now=now, everything_for=everything_for, limits=LIMITS)
                closed.append(row_of(service, kind, states[kind], now))
            if not closed:
                return []
            manifest = make_breakers(service, settings.namespace, states, version)
            try:
                await (kube.replace(CONFIGMAPS, manifest) if version else kube.create(CONFIGMAPS, manifest))
            except (AlreadyExists, Conflict):
                if not left:
                    raise
            else:
                return closed
        raise AssertionError("the last attempt returns or raises")


async def read_user(kube: Kube) -> str:
    """Return the user name from the API server, else that of the operating system."""
    review: dict[str, Any] = {"apiVersion": _WHO_AM_I.api_version, "kind": _WHO_AM_I.kind, "metadata": {"name": ""}}
    try:
        answer = await kube.create(_WHO_AM_I, review)
        name = answer["status"]["userInfo"]["username"]
    except (KubeError, KeyError, TypeError):
        try:
            name = f"{getpass.getuser()} (local user)"
        except (KeyError, OSError):
            name = "unknown"
    return str(name)[:253]


def _closing_text(row: BreakerRow) -> str:
    assert row.closing is not None
    what = (
        "all deletions are permitted"
        if row.closing.everything
        else f"{len(row.closing.permitted)} paused deletions are permitted"
    )
    return f"closed {row.service} {row.kind} as {row.closing.by}: {what} until {moment(row.closing.until)}"


def _show(rows: Sequence[BreakerRow], output: Format, *, no_headers: bool) -> None:
    open_rows = [row for row in rows if row.position is not Position.CLOSED]
    if output.structured:
        print_document(output, {"ok": not open_rows, "circuit_breakers": [row.document() for row in rows]})
        return
    print_result(_table_of(rows), no_headers=no_headers)
    for row in open_rows:
        print_result(Text(f"{row.service} {row.kind}: {row.advice()}"))


def _table_of(rows: Sequence[BreakerRow]) -> Table:
    table = make_table(
        "SERVICE", "KIND", "STATE", "SINCE", "UNTIL", "PAUSED", "REASON", "LAST CLOSED", fold={"REASON", "LAST CLOSED"}
    )
    for row in rows:
        table.add_row(
            row.service,
            row.kind,
            Text(row.position.value, style=_STYLES[row.position]),
            moment(row.opening.since) if row.opening else _NONE,
            moment(row.opening.until) if row.opening else _NONE,
            str(row.paused),
            Text(row.reason or _NONE),
            Text(_closed_text(row)),
        )
    return table


def _closed_text(row: BreakerRow) -> str:
    if row.closing is None:
        return _NONE
    text = f"{moment(row.closing.at)} by {row.closing.by}"
    return f"{text}; permitted until {moment(row.closing.until)}: {row.leave.lower()}" if row.leave else text
