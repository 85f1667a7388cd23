"""``trellis explain KIND NAME``: the cause of the state of an object in the first line, then all checks.

In: flags. Out: a page or JSON; exit status 1 if a step of the chain is not healthy. Called by the command line. Writes
nothing. Invariant: the modules of a page are imported for this page only, the bus for dead letters only: they take
longer to import than most pages to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from trellis.config.settings import SettingsError
from trellis.installer_api.parse_int import whole
from trellis.read_model.explain.page import Explanation
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained_v2 import KINDS as V2_KINDS
from trellis.read_model.reading.find import ObjectNotFoundError
from trellis.read_model.reading.pod_kinds import KINDS as POD_KINDS
from trellis.telemetry import setup_logging
from trellis_cli.common.complete import complete_object
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.messages import EXIT_FAILED
from trellis_cli.common.objects import ObjectName, read_object
from trellis_cli.common.options import (
    AllNamespacesOption,
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    one_namespace,
)
from trellis_cli.common.output import DocumentOption, Format, one_line, print_document, print_result, print_text
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.v2.options import (
    Flags,
    InsecureRegistryOption,
    NatsOption,
    RegistryCaOption,
    RegistryOption,
    RepliesOption,
    Sources,
    sources_of,
)

if TYPE_CHECKING:
    from trellis.bus.dead_letters.read import DeadLetter

# ruff: noqa: PLC0415 - the imports of a page, see above

KINDS: Final = (
    "node",
    "shim",
    "hostgroup",
    "application",
    "service",
    "controller",
    "secretgrant",
    "deadletter",
    *V2_KINDS,
    *POD_KINDS,
)
"""Kinds with a page."""
_WITHOUT_PAGE: Final = {
    "secret": "`trellis secrets check --app NAME`",
    "workloadreplicaset": "`trellis explain workloaddeployment/NAME`, its owner",
}
"""Commands for kinds that have none."""


def explain(  # noqa: PLR0913, PLR0917 - options of a command line
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND NAME | KIND/NAME",
            help=f"KIND is one of: {', '.join(KINDS)}",
            autocompletion=complete_object(KINDS),
        ),
    ],
    namespace: NamespaceOption = None,
    all_namespaces: AllNamespacesOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    nats_url: Annotated[
        str | None, typer.Option(help="address of the bus, for dead letters [env: TRELLIS_NATS_URL]")
    ] = None,
    v2_nats: NatsOption = None,
    v2_replies: RepliesOption = False,
    v2_registry: RegistryOption = False,
    v2_registry_ca_file: RegistryCaOption = None,
    v2_insecure_registry: InsecureRegistryOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Show the cause of an object's state and the resolution.

    The first line has the cause and the resolution; the whole chain of checks follows. `node NAME`: from its opt-in to
    its verification. `shim NAME`: each node that fails. `hostgroup NAME`: a WasmCloudHostConfig, its pods, its lattice.
    `application NAME`: Kubernetes, wadm and the hosts. `service NAME`: the Service of an application, and each host.
    `controller NAME`: a WasmController. `secretgrant NAME`: its lattices and accounts. `deadletter SEQUENCE`: a
    dead-lettered message. `pod NAME`: a Wasm pod, from RuntimeClass to probes; also its owner: `deployment NAME`,
    `statefulset NAME`, `daemonset NAME`, `job NAME`, `cronjob NAME` or `spinapp NAME` (of SpinKube). Of wasmCloud v2:
    `workloaddeployment NAME`, `workload NAME`, `whost NAME` (a Host),
    `whostgroup NAME` (the Hosts and pods of a host group) and `artifact NAME`; the credentials for --v2-nats are in
    TRELLIS_V2_NATS_CREDENTIALS_FILE, TRELLIS_V2_NATS_CA_FILE and TRELLIS_V2_NATS_CERTIFICATE_FILE. Ends with 1 if a
    check failed. JSON: `{"ok", "subject", "cause", "do", "headline", "lines": [{"about", "ok", "text", "do"}]}`;
    `ok` of a line is null if it is not a check, `cause` and `do` are null if no check failed.
    """
    with exit_on_error():
        wanted = read_argument(what, one_namespace(namespace, all_namespaces=all_namespaces))
        settings = client_settings(kubeconfig=kubeconfig, context=context, nats_url=nats_url, v2_nats=v2_nats)
        flags = Flags(v2_nats is not None, v2_replies, v2_registry, v2_registry_ca_file, v2_insecure_registry or ())
        sources = sources_of(settings, wanted.kind, flags)
        if wanted.kind == "deadletter":
            page = asyncio.run(_dead_letter_page(settings, wanted.name))
        else:
            page = asyncio.run(_page(settings, wanted, sources))
        _show(page, output)
        if page.cause is not None:
            raise SystemExit(EXIT_FAILED)


def read_argument(arguments: Sequence[str], namespace: str | None) -> ObjectName:
    """Return the object to explain.

    Raises:
        SettingsError: the words do not name an object with a page.
    """
    kind = arguments[0].partition("/")[0].partition(".")[0].lower() if arguments else ""
    if (resolution := _WITHOUT_PAGE.get(kind.removesuffix("s"))) is not None:
        raise SettingsError(f"{kind} has no page: use {resolution}")
    return read_object(arguments, KINDS, namespace)


async def _page(settings: ClientSettings, wanted: ObjectName, sources: Sources) -> Explanation:
    async with connected(settings) as kube:
        try:
            return await _found(settings, Reading(kube, settings.namespace), wanted, sources)
        except ObjectNotFoundError as error:
            return error.page


async def _found(settings: ClientSettings, reading: Reading, wanted: ObjectName, sources: Sources) -> Explanation:
    if wanted.kind in V2_KINDS:
        from trellis_cli.v2.page import v2_page

        return await v2_page(reading, wanted, sources)
    if wanted.kind in POD_KINDS:
        from trellis.read_model.reading.explained_pods import pods_page

        return await pods_page(reading, wanted.kind, wanted.name, wanted.namespace)
    if wanted.kind == "secretgrant":
        from trellis_cli.explain.grant_read import grant_page

        return await grant_page(reading, wanted.name, wanted.namespace)
    from trellis.read_model.reading.explained import page_of

    return await page_of(reading, settings.installer_namespace, wanted.kind, wanted.name, wanted.namespace)


async def _dead_letter_page(settings: ClientSettings, name: str) -> Explanation:
    """Return the page of a dead letter. Raise CommandError if ``name`` is not a number."""
    number = whole(name)
    if number is None:
        raise CommandError(f'"{name}" is not the SEQUENCE of a dead letter; see `trellis dead-letters list`')
    from trellis.bus.dead_letters.store import dead_letters
    from trellis.read_model.reading.explained_dead_letter import explain_dead_letter

    setup_logging(log_format="text", level="error")
    dead_letter: DeadLetter | None
    async with dead_letters(settings.nats_url, credentials=settings.nats_credentials) as box:
        dead_letter = await box.get(number)
    return explain_dead_letter(dead_letter, name)


def _show(page: Explanation, output: Format) -> None:
    if output.structured:
        print_document(output, page.document())
        return
    print_text(one_line(page.headline))
    table = Table(box=None, pad_edge=False, show_header=False)
    for wrap in (False, False, True):
        table.add_column(no_wrap=not wrap, overflow="fold")
    marks = {True: Text("yes", style="green"), False: Text("no", style="bold red"), None: Text("")}
    for line in page.lines:
        table.add_row(line.about, marks[line.ok], Text(one_line(line.shown)))
    print_text("")
    print_result(table)
