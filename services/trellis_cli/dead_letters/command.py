"""``trellis dead-letters``: list, show and replay dead-lettered messages.

In: flags. Out: a table, a page or JSON; replayed messages on the bus. Called by the command line.
Invariant: a dead letter is removed only after the server has stored the original message.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from trellis.bus.consume.message import Reason
from trellis.bus.dead_letters.read import DeadLetter, Wanted
from trellis.bus.dead_letters.store import dead_letters
from trellis.bus.dead_letters.write import UNKNOWN_NOUN
from trellis.config.settings import SettingsError
from trellis.events.subjects import EVENT_SPECS
from trellis.read_model.reading.dead_letters import document as letter_document
from trellis.read_model.reading.dead_letters import full_document
from trellis.telemetry import setup_logging
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.messages import EXIT_FAILED, print_error
from trellis_cli.common.objects import printed_name
from trellis_cli.common.output import (
    DocumentOption,
    Format,
    NoHeadersOption,
    OutputOption,
    print_document,
    print_names,
    print_result,
    print_text,
)
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.common.times import span
from trellis_cli.common.watch import Listed, Shown, View, WatchEventsOption, WatchOption, follow, is_watch
from trellis_cli.dead_letters.replay import Choice, Outcome, ReplayReport, replay_dead_letters
from trellis_cli.dead_letters.views import footer, page_of, table_of

app = typer.Typer(help="List, show and replay dead-lettered messages.", no_args_is_help=True)

ClusterOption = Annotated[str | None, typer.Option(help="only dead letters of this cluster [env: TRELLIS_CLUSTER]")]
ServiceOption = Annotated[str | None, typer.Option(help="only dead letters of this service")]
NounOption = Annotated[str | None, typer.Option(help="only messages about this: node, provision, rollout, unknown")]
ReasonOption = Annotated[str | None, typer.Option(help=f"only this reason: {', '.join(Reason)}")]
SinceOption = Annotated[str | None, typer.Option(help="start: 10m (ago), 2h or 2026-01-31T08:00:00Z")]
UntilOption = Annotated[str | None, typer.Option(help="end, as --since")]
NatsOption = Annotated[str | None, typer.Option(help="address of the bus [env: TRELLIS_NATS_URL]")]


@app.command("list")
def list_dead_letters(  # noqa: PLR0913, PLR0917 - options of a command line
    cluster: ClusterOption = None,
    service: ServiceOption = None,
    noun: NounOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    nats_url: NatsOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
    watch: WatchOption = False,
    output_watch_events: WatchEventsOption = False,
) -> None:
    """List dead letters, the oldest first.

    JSON: `{"letters": [{"sequence", "time", "cluster", "service", "subscription", "noun", "key", "reason", "error",
    "deliveries", "subject", "stream", "original_sequence", "trace_id", "size", "truncated", "obstacle"}],
    "read": 3}`. `obstacle` is the reason why a dead letter cannot be replayed, empty if it can.
    """
    with exit_on_error():
        watched = is_watch(watch=watch, events=output_watch_events)
        settings, filters = _settings_and_filters(nats_url, _Filters(cluster, service, noun, reason, since, until))
        if watched:
            asyncio.run(_watch(settings, filters, Shown(output, no_headers, output_watch_events)))
            return
        letters, looked_at = asyncio.run(_find(settings, filters))
        if output.structured:
            print_document(output, {"letters": [letter_document(item) for item in letters], "read": looked_at})
            return
        if output is Format.NAME:
            print_names(printed_name("deadletter", str(dead_letter.sequence)) for dead_letter in letters)
            return
        if letters:
            print_result(table_of(letters), no_headers=no_headers)
        if not no_headers:
            print_result(footer(letters, looked_at))


@app.command()
def show(
    sequence: Annotated[int, typer.Argument(min=1, help="sequence, as in `trellis dead-letters list`")],
    nats_url: NatsOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Show one dead letter: reason, headers and body of the original.

    JSON: the fields of `dead-letters list`, `original_size`, `headers` and the body: `body` if it is JSON, else
    `body_text`, else `body_base64`.
    """
    with exit_on_error():
        dead_letter = asyncio.run(_get(_quiet(nats_url), sequence))
        if output.structured:
            print_document(output, full_document(dead_letter))
        else:
            print_text(page_of(dead_letter))


@app.command()
def replay(  # noqa: PLR0913, PLR0917 - options of a command line
    sequences: Annotated[
        list[int] | None,
        typer.Argument(min=1, metavar="SEQUENCE", help="sequences, as in `trellis dead-letters list`"),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="all dead letters that the filters select")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only print the result, change nothing")] = False,
    cluster: ClusterOption = None,
    service: ServiceOption = None,
    noun: NounOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    nats_url: NatsOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Publish messages again on their original subjects, and remove their dead letters.

    Every subscriber of the subject receives the message again; subscribers are idempotent. A dead letter is removed
    after the message is stored. Ends with 1 if a dead letter could not be replayed.

    JSON: `{"letters": [{"sequence", "outcome", "subject", "message"}], "replayed": 2, "not_replayed": 0, "dry_run":
    false, "ended_by": ""}`; `outcome` is Replayed, WouldReplay or NotReplayed, `ended_by` the error that ended the
    replay early.
    """
    with exit_on_error():
        filters_given = _Filters(cluster, service, noun, reason, since, until)
        if bool(sequences) == every:
            raise SettingsError("SEQUENCE: needs sequences or --all; see `trellis dead-letters list`")
        if sequences and filters_given != _Filters():
            raise SettingsError("filters need --all: they do not apply to sequences")
        settings, filters = _settings_and_filters(nats_url, filters_given)
        choice = Choice(tuple(dict.fromkeys(sequences or ())), filters, dry_run=dry_run)
        report = asyncio.run(replay_dead_letters(settings.nats_url, choice, settings.nats_credentials))
        _print_report(report, output)
        if not report.complete:
            raise SystemExit(EXIT_FAILED)


@dataclass(frozen=True, slots=True)
class _Filters:
    """Filters from the command line."""

    cluster: str | None = None
    service: str | None = None
    noun: str | None = None
    reason: str | None = None
    since: str | None = None
    until: str | None = None


def _quiet(nats_url: str | None) -> ClientSettings:
    setup_logging(log_format="text", level="error")
    return client_settings(nats_url=nats_url)


def _settings_and_filters(nats_url: str | None, given: _Filters) -> tuple[ClientSettings, Wanted]:
    """Return the settings and the filters. Raise SettingsError for invalid options."""
    settings = _quiet(nats_url)
    since, until = span(given.since, given.until, datetime.now(UTC))
    nouns = sorted({spec.model.noun for spec in EVENT_SPECS} | {UNKNOWN_NOUN})
    if given.noun is not None and given.noun not in nouns:
        raise SettingsError(f"--noun: has {given.noun!r}, needs one of: {', '.join(nouns)}")
    if given.reason is not None and given.reason.lower() not in {reason.lower() for reason in Reason}:
        raise SettingsError(f"--reason: has {given.reason!r}, needs one of: {', '.join(Reason)}")
    return settings, Wanted(
        cluster=given.cluster or settings.cluster,
        # Services have dashes on the command line and underscores on the bus.
        service=given.service.replace("-", "_") if given.service else None,
        noun=given.noun,
        reason=given.reason,
        since=since,
        until=until,
    )


async def _find(settings: ClientSettings, filters: Wanted) -> tuple[list[DeadLetter], int]:
    async with dead_letters(settings.nats_url, credentials=settings.nats_credentials) as box:
        letters = [dead_letter async for dead_letter in box.find(filters)]
        return letters, box.looked_at


async def _watch(settings: ClientSettings, filters: Wanted, shown: Shown) -> None:
    view: View[DeadLetter] = View(
        key=lambda dead_letter: (dead_letter.epoch, dead_letter.sequence),
        table=table_of,
        document=letter_document,
        name=lambda dead_letter: printed_name("deadletter", str(dead_letter.sequence)),
    )
    async with dead_letters(settings.nats_url, credentials=settings.nats_credentials) as box:

        async def read() -> Listed[DeadLetter]:
            return Listed([dead_letter async for dead_letter in box.find(filters)])

        await follow(read, view, shown)


async def _get(settings: ClientSettings, sequence: int) -> DeadLetter:
    async with dead_letters(settings.nats_url, credentials=settings.nats_credentials) as box:
        dead_letter = await box.get(sequence)
    if dead_letter is None:
        raise CommandError(
            f"dead letter {sequence} not found: it was replayed or has expired; see `trellis dead-letters list`"
        )
    return dead_letter


def _print_report(report: ReplayReport, output: Format) -> None:
    if output.structured:
        print_document(output, report.document())
        return
    for line in report.lines:
        print_text(f"{line.sequence}  {_OUTCOME_TEXTS[line.outcome]}  {line.text}")
    print_text(report.summary())
    if report.ended_by:
        print_error(report.ended_by)


_OUTCOME_TEXTS: Final = {
    Outcome.REPLAYED: "replayed",
    Outcome.WOULD_REPLAY: "would be replayed",
    Outcome.NOT_REPLAYED: "not replayed",
}
