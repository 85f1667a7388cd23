"""``trellis shims``: known Wasm runtimes, and Shims of them.

In: flags, the catalogue of this package, the cluster. Out: tables, manifests, one Shim. Called by the command line and
by a Job of the chart. Invariant: a Shim is written after each of its files was downloaded and has its checksum.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from node_installer.fetch.web import Web
from trellis.config.settings import SettingsError
from trellis.kube.client import Kube
from trellis.kube.resources import SHIMS
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.shims import view_shim
from trellis.read_model.reading.cluster import Reading
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.gather import connected, read_cluster
from trellis_cli.common.messages import print_note
from trellis_cli.common.objects import printed_name
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import (
    Format,
    NoHeadersOption,
    ObjectOption,
    make_table,
    print_document,
    print_names,
    print_result,
    print_text,
)
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.common.watch import Listed, Shown, View, WatchEventsOption, WatchOption, is_watch, watch_cluster
from trellis_cli.shims.files import check_files
from trellis_cli.shims.model import (
    CatalogueError,
    Manifest,
    Row,
    Runtime,
    find_release,
    make_shim,
    parse_catalogue,
    rows_of,
)
from trellis_cli.shims.write import Outcome, Written, write_default, write_release

_NONE: Final = "-"
_LABEL: Final = re.compile(r"(?P<key>([-A-Za-z0-9.]+/)?[-A-Za-z0-9_.]+)=(?P<value>[-A-Za-z0-9_.]*)")

app = typer.Typer(help="List known Wasm runtimes, and create Shims of them.", no_args_is_help=True)


class DryRun(StrEnum):
    """The values of ``--dry-run`` of kubectl."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


@app.command("list")
def list_shims(  # noqa: PLR0913, PLR0917 - options of a command line
    catalogue: Annotated[bool, typer.Option("--catalogue", help="list every known release; needs no cluster")] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: ObjectOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
    watch: WatchOption = False,
    output_watch_events: WatchEventsOption = False,
) -> None:
    """List the Shims of the cluster with their version and the newest one, and the known runtimes without a Shim.

    The version is that of the release whose checksum the Shim has; for other Shims that of the label
    `app.kubernetes.io/version`. JSON: `{"shims": [{"shim", "runtime", "version", "newest", "outdated"}], "notes": []}`,
    with --catalogue `{"runtimes": [{"name", "summary", "page", "license", "releases": [{"version", "checksum",
    "files": [{"arch", "location", "sha256"}]}]}]}`. `checksum` is the public source that states the checksums.
    """
    with exit_on_error():
        watched = is_watch(watch=watch, events=output_watch_events, unless={"--catalogue": catalogue})
        known = read_catalogue()
        if catalogue:
            if output is Format.NAME:
                raise SettingsError("--output: name is for Shims of the cluster, omit --catalogue")
            _show_catalogue(known, output, no_headers=no_headers)
            return
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        if watched:
            asyncio.run(_watch(settings, known, Shown(output, no_headers, output_watch_events)))
            return
        listed = asyncio.run(read_cluster(settings, lambda kube: _rows(kube, settings, known)))
        _show_rows(listed, output, no_headers=no_headers)


@app.command()
def add(  # noqa: PLR0913, PLR0917 - options of a command line
    release: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="runtime of the catalogue; default: newest")],
    name: Annotated[str | None, typer.Option(help="name of the Shim; default: that of the runtime")] = None,
    node_selector: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="label of its nodes (repeatable); default: wasm=true"),
    ] = None,
    max_update: Annotated[
        str | None, typer.Option(metavar="NUMBER|PERCENT", help="nodes changed at the same time; default: 10%")
    ] = None,
    dry_run: Annotated[DryRun, typer.Option(help="none, client or server: print the Shim without storing it")] = (
        DryRun.NONE
    ),
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: ObjectOption = Format.TABLE,
) -> None:
    """Create a Shim of a known runtime, or change the release of an existing one.

    Each file is downloaded first and has to have the checksum of the catalogue and a shim for its architecture.
    The nodes download it again, from the same address. Of an existing Shim only `spec.fetchStrategy` is changed: it is
    rolled out with the limits of that Shim, and --node-selector and --max-update are refused if they differ from it.
    `--dry-run=client -o yaml` prints a new Shim for a repository.
    """
    with exit_on_error():
        try:
            found = find_release(read_catalogue(), release)
        except CatalogueError as error:
            raise SettingsError(str(error)) from None
        selector = dict(map(_label, node_selector or ["wasm=true"]))
        shim = make_shim(
            found, name or found.runtime, selector, _max_update("10%" if max_update is None else max_update)
        )
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        check_files(found, shim["metadata"]["name"], Web())
        if dry_run is DryRun.CLIENT:
            _show_written(Written(shim, Outcome.CREATED), dry_run, output)
        else:
            options = {
                "nodeSelector": (node_selector, "--node-selector"),
                "rolloutStrategy": (max_update, "--max-update"),
            }
            requested = {key: option for key, (value, option) in options.items() if value}
            _show_written(asyncio.run(_write(settings, shim, dry_run, requested)), dry_run, output)


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the Shim, as YAML or JSON")],
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Apply the default Shim of the chart. A Job of the chart runs this command.

    A Shim of the same name that the chart did not create is not changed.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        _show_written(asyncio.run(_apply(settings, _read_shim(file))), DryRun.NONE, Format.TABLE)


def read_catalogue() -> tuple[Runtime, ...]:
    """Return the catalogue of this package."""
    return parse_catalogue(resources.files("trellis_cli.shims").joinpath("catalogue.toml").read_text(encoding="utf-8"))


async def _rows(kube: Kube, settings: ClientSettings, known: Sequence[Runtime]) -> Listed[Row]:
    reading = Reading(kube, settings.namespace)
    shims = await reading.list(SHIMS)
    rows = rows_of(known, [(view_shim(shim), shim) for shim in shims])
    return Listed(rows, [line.text for line in reading.notes])


async def _watch(settings: ClientSettings, known: Sequence[Runtime], shown: Shown) -> None:
    view: View[Row] = View(
        key=lambda row: (row.shim, "" if row.shim else row.runtime),
        table=_table_of,
        document=Row.document,
        name=lambda row: printed_name("shim", row.shim) if row.shim else "",
        named=2,
    )
    await watch_cluster(settings, lambda kube: _rows(kube, settings, known), view, shown)


async def _write(settings: ClientSettings, shim: Manifest, dry_run: DryRun, requested: Mapping[str, str]) -> Written:
    async with connected(settings) as kube:
        return await write_release(kube, shim, dry_run=dry_run is DryRun.SERVER, requested=requested)


async def _apply(settings: ClientSettings, shim: Manifest) -> Written:
    async with connected(settings) as kube:
        return await write_default(kube, shim)


def _label(text: str) -> tuple[str, str]:
    """Return key and value of ``--node-selector``. Raise SettingsError for another form."""
    found = _LABEL.fullmatch(text)
    if found is None:
        raise SettingsError(f"--node-selector: has {text!r}, needs a label such as wasm=true")
    return found["key"], found["value"]


def _max_update(text: str) -> int | str:
    """Return a number, or a percentage as text. Raise SettingsError for another form."""
    try:
        CountOrPercent.parse(text)
    except ValueError as error:
        raise SettingsError(f"--max-update: has {text!r}, {error}") from None
    return int(text) if text.isdecimal() else text


def _read_shim(file: Path) -> Manifest:
    """Return the Shim in a file.

    Raises:
        CommandError: the file cannot be read, or has something else.
    """
    import yaml  # noqa: PLC0415 - other commands read no YAML

    try:
        found: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict) or found.get("kind") != SHIMS.kind or not (found.get("metadata") or {}).get("name"):
        raise CommandError(f"{file} has no Shim with a name")
    return found


def _show_catalogue(known: Sequence[Runtime], output: Format, *, no_headers: bool) -> None:
    if output.structured:
        print_document(output, {"runtimes": [runtime.document() for runtime in known]})
        return
    table = make_table("RUNTIME", "VERSION", "PLATFORMS", "LICENSE", "RUNS", "PAGE", fold={"RUNS", "PAGE"})
    for runtime in known:
        for release in runtime.releases:
            platforms = ",".join(f"linux/{file.arch}" for file in release.files)
            table.add_row(runtime.name, release.version, platforms, runtime.license, runtime.summary, runtime.page)
    print_result(table, no_headers=no_headers)


def _show_rows(listed: Listed[Row], output: Format, *, no_headers: bool) -> None:
    rows = listed.rows
    if output.structured:
        print_document(output, {"shims": [row.document() for row in rows], "notes": list(listed.notes)})
        return
    for note in listed.notes:
        print_note(note)
    if output is Format.NAME:
        print_names(printed_name("shim", row.shim) for row in rows if row.shim)
        return
    print_result(_table_of(rows), no_headers=no_headers)
    outdated = [row for row in rows if row.outdated]
    if outdated and not no_headers:
        first = outdated[0]
        print_result(f"newer: trellis shims add {first.runtime}@{first.newest} --name {first.shim}")


def _table_of(rows: Sequence[Row]) -> Table:
    table = make_table("SHIM", "RUNTIME", "VERSION", "NEWEST")
    for row in rows:
        newest = Text(row.newest or _NONE, style="yellow" if row.outdated else "")
        table.add_row(Text(row.shim or _NONE), row.runtime or _NONE, Text(row.version or _NONE), newest)
    return table


def _show_written(written: Written, dry_run: DryRun, output: Format) -> None:
    """Print the Shim, or what changed in the words of kubectl."""
    name = printed_name("shim", written.manifest["metadata"]["name"])
    if output.structured:
        metadata = {key: value for key, value in written.manifest["metadata"].items() if key != "managedFields"}
        print_document(output, written.manifest | {"metadata": metadata})
    elif output is Format.NAME:
        print_names([name])
    else:
        marks = {DryRun.CLIENT: " (dry run)", DryRun.SERVER: " (server dry run)"}
        print_text(f"{name} {written.outcome.value}{marks.get(dry_run, '')}")
