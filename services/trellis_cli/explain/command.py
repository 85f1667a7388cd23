"""``trellis explain KIND/NAME``: why something is, or is not, as it should be: the answer first, then the whole chain.

In: flags. Out: a page or JSON, and exit status 1 if a step of the chain is not well. Called by the command line. Writes
nothing.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from trellis.bus.dead_letters.read import DeadLetter
from trellis.bus.dead_letters.store import dead_letters
from trellis.installer_api.parse_int import whole
from trellis.read_model.explain.page import Explanation
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained import page_of
from trellis.read_model.reading.explained_letter import explain_letter
from trellis.read_model.reading.find import NotThereError
from trellis.telemetry import setup_logging
from trellis_cli.common.errors import EXIT_FAILED, CommandError, exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import Format, OutputOption, console, one_line, print_json, print_text
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.explain.grant_read import grant_page

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "node": ("nodes", "no"),
    "shim": ("shims", "shims.runtime.spinkube.dev"),
    "hostgroup": ("wasmcloudhostconfig", "wasmcloudhostconfigs", "wasmcloudhostconfigs.k8s.wasmcloud.dev", "whc"),
    "application": ("applications", "applications.core.oam.dev", "app", "apps"),
    "service": ("services", "svc"),
    "controller": ("controllers", "wasmcontroller", "wasmcontrollers", "wasmcontrollers.trellis.dev", "wasmctl"),
    "secretgrant": ("secretgrants", "secretgrants.trellis.dev"),
    "deadletter": ("letter", "deadletters", "letters"),
}
"""By kind its other names: those that Kubernetes takes, and short ones."""
_NAMES: Final = {name: kind for kind, others in KINDS.items() for name in (kind, *others)}
_CLUSTERED: Final = frozenset({"node", "shim", "deadletter"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What the person at the terminal asked about."""

    kind: str
    name: str
    namespace: str | None


def explain(
    what: Annotated[str, typer.Argument(metavar="KIND/NAME", help=f"KIND is one of: {', '.join(KINDS)}")],
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="of the object; all, if not given")] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    nats_url: Annotated[str | None, typer.Option(help="the bus, for a dead letter [env: TRELLIS_NATS_URL]")] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show why something is not ready: the cause in the first line, what to do, then the whole chain.

    KIND may also be a name that `kubectl` takes. `node/NAME`: from its opting in to its proof. `shim/NAME`: each node
    that fails. `hostgroup/NAME`: a WasmCloudHostConfig, its pods, its lattice. `application/NAME`: both sides of it,
    and its hosts. `service/NAME`: the Service of an application, and each host. `controller/NAME`: a WasmController.
    `secretgrant/NAME`: whom it lets in. `deadletter/SEQUENCE`: a message that a service gave up on. Ends with 1 if
    something is not well. JSON: `{"ok", "subject", "cause", "do", "headline", "lines": [{"about", "ok", "text",
    "do"}]}`; `ok` of a line is null for what is neither good nor bad, `cause` and `do` are null if all is well.
    """
    with exit_on_error():
        asked = read_argument(what, namespace)
        settings = client_settings(kubeconfig=kubeconfig, context=context, nats_url=nats_url)
        page = asyncio.run(_letter(settings, asked.name) if asked.kind == "deadletter" else _page(settings, asked))
        _show(page, output)
        if page.cause is not None:
            raise SystemExit(EXIT_FAILED)


def read_argument(what: str, namespace: str | None) -> Asked:
    """Return what is meant by ``KIND/NAME``, ``KIND/NAMESPACE/NAME``, in any case of the kind.

    Raises:
        CommandError: it is none of these.
    """
    kind, _, rest = what.partition("/")
    place, _, name = rest.rpartition("/")
    found = _NAMES.get(kind.lower())
    if found is None or not name or "/" in place or (place and (namespace or found in _CLUSTERED)):
        raise CommandError(f"cannot explain {what!r}: {_instead(kind.lower(), rest, known=found is not None)}")
    return Asked(found, name, place or namespace)


def _instead(kind: str, rest: str, *, known: bool) -> str:
    """Return what to write, or to run, in place of what names no object."""
    if kind in {"secret", "secrets"}:
        return "`trellis secrets check --app NAME` says which rule lets the secrets of an application through"
    near = [] if known else difflib.get_close_matches(kind, _NAMES, n=1)
    meant = f"did you mean {near[0]}/{rest or 'NAME'}? Otherwise " if near else ""
    return f"{meant}write KIND/NAME, where KIND is one of: {', '.join(KINDS)}"


async def _page(settings: ClientSettings, asked: Asked) -> Explanation:
    async with connected(settings) as kube:
        try:
            return await _found(settings, Reading(kube, settings.namespace), asked)
        except NotThereError as error:
            return error.page


async def _found(settings: ClientSettings, reading: Reading, asked: Asked) -> Explanation:
    if asked.kind == "secretgrant":
        return await grant_page(reading, asked.name, asked.namespace)
    return await page_of(reading, settings.installer_namespace, asked.kind, asked.name, asked.namespace)


async def _letter(settings: ClientSettings, name: str) -> Explanation:
    """Return the page of a dead letter; raises CommandError for what is no number."""
    number = whole(name)
    if number is None:
        raise CommandError(
            f"cannot explain letter {name!r}: name its SEQUENCE, which `trellis dead-letters list` shows"
        )
    setup_logging(log_format="text", level="error")
    letter: DeadLetter | None
    async with dead_letters(settings.nats_url, credentials=settings.nats_credentials) as box:
        letter = await box.get(number)
    return explain_letter(letter, name)


def _show(page: Explanation, output: Format) -> None:
    if output is Format.JSON:
        print_json(page.document())
        return
    print_text(one_line(page.headline))
    table = Table(box=None, pad_edge=False, show_header=False)
    for wrap in (False, False, True):
        table.add_column(no_wrap=not wrap, overflow="fold")
    marks = {True: Text("yes", style="green"), False: Text("no", style="bold red"), None: Text("")}
    for line in page.lines:
        table.add_row(line.about, marks[line.well], Text(one_line(line.shown)))
    print_text("")
    console().print(table)
