"""`trellis dev`: local clusters with a real control plane, for development and tests.

In: options of the command line. Out: a summary in text, or with ``-o json`` or ``yaml`` a document on standard output,
with ``--json`` the same document as JSON on one line; progress goes to standard error. Called by the `trellis`
command. Exit status: 0 success, 1 failure (the message names the remedy), 2 invalid command line, 128 + n terminated
by signal n.
Invariant: this module imports no module of clusters, so help and usage errors are printed immediately.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from trellis_cli.common.output import DocumentOption, Format, FormerJsonOption

app = typer.Typer(help="Run local clusters.", no_args_is_help=True)

Name = Annotated[str, typer.Option(help="Name of the cluster.")]
JsonLine = Annotated[bool, typer.Option("--json", help="Print JSON on one line, the last of standard output.")]
Jaeger = Annotated[bool, typer.Option("--jaeger", help="Start Jaeger for traces.")]


class OptionalCount(TyperCommand):
    """Command with an option ``--real-node`` whose number is optional; the default number is 1."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (the type of typer is private)
        """Insert the default number after ``--real-node`` if it is missing."""
        arguments: list[str] = []
        for word, following in zip(args, [*args, ""][1:], strict=True):
            arguments.append("--real-node=1" if word == "--real-node" and not following.isdecimal() else word)
        return super().parse_args(ctx, arguments)


class Containerd(StrEnum):
    """Versions of containerd for real nodes."""

    TWO = "2"
    ONE_SIX = "1.6"


@app.command(cls=OptionalCount)
def up(  # noqa: PLR0913, PLR0917 (one parameter per option)
    name: Name = "default",
    nodes: Annotated[int, typer.Option(min=0, max=5000, help="Number of simulated nodes.")] = 0,
    jaeger: Jaeger = False,
    wadm: Annotated[bool, typer.Option("--wadm", help="Start wadm and wasmCloud hosts.")] = False,
    wadm_hosts: Annotated[int, typer.Option(min=0, max=50, help="Number of hosts of each lattice, with --wadm.")] = 1,
    wadm_lattice: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Lattice; default: 'default' (repeatable).")
    ] = None,
    wadm_label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Label of the hosts (repeatable).")
    ] = None,
    real_node: Annotated[
        int,
        typer.Option(
            "--real-node",
            min=0,
            max=8,
            metavar="[N]",
            help="Start N real nodes (default 1): kubelet, containerd. Needs root.",
        ),
    ] = 0,
    containerd: Annotated[Containerd, typer.Option(help="Version of containerd on real nodes.")] = Containerd.TWO,
    lattice_nats: Annotated[
        bool, typer.Option("--lattice-nats", help="Start a NATS through which pods of real nodes join lattices.")
    ] = False,
    output: DocumentOption = Format.TABLE,
    json_line: JsonLine = False,
) -> None:
    """Start a cluster, or add components to a running one.

    The first run builds missing programs from Go modules and crates, which needs minutes; later runs need a few
    seconds.
    """
    labels = _labels(wadm_label or [])
    if not wadm and (wadm_hosts != 1 or wadm_lattice or wadm_label):
        typer.echo("--wadm-hosts, --wadm-lattice and --wadm-label need --wadm: add --wadm", err=True)
        raise typer.Exit(2)
    from trellis_dev.commands import local as dev_local  # noqa: PLC0415 - slow imports
    from trellis_dev.localcluster import Lattices  # noqa: PLC0415 - slow imports

    real = dev_local.RealNodes(real_node, containerd.value, lattice_nats)
    lattices = Lattices(tuple(wadm_lattice or ["default"]), wadm_hosts, labels) if wadm else None
    dev_local.up(name, nodes=nodes, real=real, jaeger=jaeger, lattices=lattices, output=output, json_line=json_line)


@app.command()
def down(
    name: Name = "default", every: Annotated[bool, typer.Option("--all", help="All clusters of the user.")] = False
) -> None:
    """Stop a cluster and remove its files."""
    from trellis_dev.commands import local as dev_local  # noqa: PLC0415 - slow imports

    dev_local.down(None if every else name)


@app.command()
def status(output: DocumentOption = Format.TABLE, json_line: JsonLine = False) -> None:
    """List the clusters and their components."""
    from trellis_dev.commands import local as dev_local  # noqa: PLC0415 - slow imports

    dev_local.status(output, json_line=json_line)


@app.command("tools")
def ensure_tools(
    jaeger: Jaeger = False,
    real_node: Annotated[
        bool, typer.Option("--real-node", help="Also install the tools of real nodes and their tests.")
    ] = False,
    wadm: Annotated[bool, typer.Option("--wadm", help="Also install wadm and a wasmCloud host.")] = False,
) -> None:
    """Install the programs of clusters, and build missing ones."""
    from trellis_dev.commands import local as dev_local  # noqa: PLC0415 - slow imports

    dev_local.ensure_tools(jaeger=jaeger, real_node=real_node, wadm=wadm)


@app.command("image")
def build_images(
    source: Annotated[Path, typer.Option(metavar="DIR", help="Checkout of Trellis.")] = Path(),
    name: Name = "default",
    export: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also export archives, SBOMs and licences to this directory.")
    ] = None,
    output: DocumentOption = Format.TABLE,
    former_json: FormerJsonOption = False,
) -> None:
    """Build the images from a checkout without a container engine, and load them on the real nodes of a cluster.

    The first run builds a Debian tree as the base. Needs root and Linux.
    """
    del former_json
    from trellis_dev.commands import images as dev_images  # noqa: PLC0415 - slow imports

    dev_images.build(source, name, export, output)


@app.command("page")
def build_page(
    source: Annotated[Path, typer.Option(metavar="DIR", help="Checkout of Trellis.")] = Path(),
    check: Annotated[bool, typer.Option("--check", help="Also run the type checks and the unit tests.")] = False,
    browser: Annotated[bool, typer.Option("--browser", help="Also install the browser for the tests.")] = False,
) -> None:
    """Build the console page for `trellis run console` from this checkout. Needs node and npm."""
    from trellis_dev.commands import page as dev_page  # noqa: PLC0415 - slow imports

    dev_page.build(source, check=check, browser=browser)


def _labels(pairs: list[str]) -> dict[str, str]:
    """Return KEY=VALUE pairs as a mapping; end the command with status 2 if a pair is invalid."""
    for pair in pairs:
        if not pair.partition("=")[0] or "=" not in pair:
            typer.echo(f"'{pair}' is not a label: use --wadm-label KEY=VALUE", err=True)
            raise typer.Exit(2)
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
