"""`trellis dev`: a real control plane on this machine, for trying things out and for tests.

In: options of the command line. Out: a summary for people, or with ``--json`` one JSON value as the last line of
standard output; progress goes to standard error. Called by the `trellis` command. Exit status: 0 done, 1 it failed
(the message says what to do), 2 the command line asks for something that does not exist, 128 + n ended by signal n.
Invariant: importing this module needs nothing of the extra ``local``, which the services' images do not have.
"""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="A real control plane on this machine: NATS, Kubernetes, simulated nodes.", no_args_is_help=True)

Name = Annotated[str, typer.Option(help="Name of the cluster.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON as the last line of standard output.")]
Jaeger = Annotated[bool, typer.Option("--jaeger", help="With Jaeger, to look at traces.")]


@app.command()
def up(
    name: Name = "default",
    nodes: Annotated[int, typer.Option(min=0, max=5000, help="How many simulated nodes.")] = 0,
    jaeger: Jaeger = False,
    wadm: Annotated[bool, typer.Option("--wadm", help="With wadm and a wasmCloud host.")] = False,
    real_node: Annotated[bool, typer.Option("--real-node", help="With a kubelet and containerd.")] = False,
    as_json: Json = False,
) -> None:
    """Bring a cluster up, or complete the one that runs.

    The first time, missing programs are built from Go modules, which takes minutes; later it is a few seconds.
    """
    for asked, option in ((wadm, "--wadm"), (real_node, "--real-node")):
        if asked:
            typer.echo(f"not yet: {option} is planned, and nothing was started", err=True)
            raise typer.Exit(2)
    _require_extra()
    from trellis_bundle import dev_local  # noqa: PLC0415 - needs the extra

    dev_local.up(name, nodes=nodes, jaeger=jaeger, as_json=as_json)


@app.command()
def down(
    name: Name = "default", every: Annotated[bool, typer.Option("--all", help="Every cluster of yours.")] = False
) -> None:
    """Take a cluster down and remove everything of it."""
    _require_extra()
    from trellis_bundle import dev_local  # noqa: PLC0415 - needs the extra

    dev_local.down(None if every else name)


@app.command()
def status(as_json: Json = False) -> None:
    """List the clusters, and which of their components run."""
    _require_extra()
    from trellis_bundle import dev_local  # noqa: PLC0415 - needs the extra

    dev_local.status(as_json=as_json)


@app.command("tools")
def ensure_tools(jaeger: Jaeger = False) -> None:
    """Get every program that clusters need, building what is missing."""
    _require_extra()
    from trellis_bundle import dev_local  # noqa: PLC0415 - needs the extra

    dev_local.ensure_tools(jaeger=jaeger)


def _require_extra() -> None:
    try:
        import trellis.localcluster  # noqa: F401, PLC0415 - needs the extra
    except ModuleNotFoundError as missing:
        typer.echo(f"trellis dev needs {missing.name}: pip install 'trellis-wasm[local]'", err=True)
        raise typer.Exit(1) from missing
