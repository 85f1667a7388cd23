"""Implements the commands of `trellis dev`; imported only when one runs.

In: validated options. Out: text or JSON on standard output, progress and errors on standard error, an exit status.
Called by :mod:`trellis_dev.commands.dev`. Invariant: a failed `up` leaves nothing of a new cluster behind.
"""

from __future__ import annotations

import http
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import NoReturn

import typer

from trellis import names
from trellis.kube.lease import read_lease
from trellis.kube.resources import LEASES, Manifest
from trellis.services import SERVICES
from trellis_cli.common.output import Format, print_document
from trellis_dev.definitions import define_kinds
from trellis_dev.localcluster import (
    ClusterInfo,
    Lattices,
    LocalClusterError,
    cluster,
    lattice_servers,
    node_images,
    realnode,
    registry,
    requirements,
    tools,
    wasmshim,
)
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.commands import PORTS
from trellis_dev.localcluster.progress import on_stderr
from trellis_dev.localcluster.state import LatticeHost

_TERMINATING = (signal.SIGTERM, signal.SIGHUP)


class _Terminated(BaseException):
    """Termination by a signal; not an Exception, like KeyboardInterrupt, so that no handler of Exception catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise _Terminated(number)


@contextmanager
def reporting_errors(what: str) -> Iterator[None]:
    """Convert errors and signals to a message on standard error and an exit status."""
    previous = {number: signal.signal(number, _terminate) for number in _TERMINATING}
    try:
        yield
    except LocalClusterError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        typer.echo(f"Error: {what} interrupted", err=True)
        raise typer.Exit(128 + signal.SIGINT) from None
    except _Terminated as ended:
        typer.echo(f"Error: {what} ended by {signal.Signals(ended.number).name}", err=True)
        raise typer.Exit(128 + ended.number) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class RealNodes:
    """Number of real nodes, their containerd version, and whether their pods reach the NATS of the lattices."""

    count: int
    containerd: str
    lattice_nats: bool


def up(  # noqa: PLR0913 (one parameter per option)
    name: str,
    *,
    nodes: int,
    real: RealNodes,
    jaeger: bool,
    lattices: Lattices | None,
    output: Format,
    json_line: bool,
) -> None:
    """Start a cluster and print its addresses; ``json_line``: as JSON on one line."""
    with reporting_errors(f"bringing up cluster '{name}'"), on_stderr() as progress:
        info = cluster.up(
            name,
            nodes=nodes,
            jaeger=jaeger,
            real_nodes=real.count,
            containerd=real.containerd,
            lattices=lattices,
            lattice_nats=real.lattice_nats,
            progress=progress,
        )
        define_kinds(info, progress)
        running = running_services(info)
    if json_line or output.structured:
        _print(output, info.model_dump(mode="json", exclude=_hidden(info)), json_line=json_line)
    else:
        typer.echo(summary(info, running))


def _print(output: Format, document: object, *, json_line: bool) -> None:
    print_document(Format.JSON if json_line else output, document, lines=json_line)


def running_services(info: ClusterInfo) -> list[str]:
    """Return the names of the services that lead in a cluster.

    secrets_backend and the console have no Lease, so nothing shows whether they run.

    Raises:
        LocalClusterError: the API server does not return the Leases.
    """
    api = Api.of_kubeconfig(info.kubeconfig)
    try:
        status, answer = api.call("GET", LEASES.path())
    except OSError as error:
        raise LocalClusterError(f"the Leases of cluster '{info.name}' cannot be read: {error}") from error
    finally:
        api.close()
    if status != http.HTTPStatus.OK:
        message = f"the API server does not return the Leases ({status}): {answer.get('message', answer)}"
        raise LocalClusterError(message)
    return leading(answer["items"], datetime.now(UTC))


def leading(leases: Iterable[Manifest], now: datetime) -> list[str]:
    """Return the names of the services whose Lease has a holder that renews it, in the order of the registry."""
    led = {str(lease["metadata"]["name"]) for lease in leases if _is_renewed(lease, now)}
    return [service.name for service in SERVICES.values() if names.LEASE_PREFIX + service.name in led]


def _is_renewed(lease: Manifest, now: datetime) -> bool:
    record = read_lease(lease)
    if not record.holder or not record.renewed:
        return False
    return (now - datetime.fromisoformat(record.renewed)).total_seconds() <= record.duration


def _hidden(info: ClusterInfo) -> set[str]:
    """Return the fields that are omitted from the output: real nodes and lattices of clusters without them."""
    optional: dict[str, object] = {"real_nodes": info.real_nodes, "lattice_nats": info.lattice_nats}
    optional |= {"lattices": info.lattices, "lattice_hosts": info.lattices}
    return {"audit_log", *(field for field, found in optional.items() if not found)}


def down(name: str | None) -> None:
    """Stop one cluster, or all. A cluster of a running process is reported and left; the status is then 1."""
    left = []
    with reporting_errors("taking clusters down"):
        for each in [name] if name is not None else registry.names():
            try:
                typer.echo(f"cluster '{each}' is stopped" if cluster.down(each) else f"there is no cluster '{each}'")
            except LocalClusterError as error:
                typer.echo(f"Error: {error}", err=True)
                left.append(each)
    if left:
        raise typer.Exit(1)


def status(output: Format, *, json_line: bool) -> None:
    """Print the clusters; ``json_line``: as JSON on one line."""
    with reporting_errors("listing clusters"):
        found = cluster.status()
    if json_line or output.structured:
        _print(output, [info.model_dump(mode="json", exclude=_hidden(info)) for info in found], json_line=json_line)
    elif found:
        typer.echo("\n".join(map(_describe, found)))
    else:
        typer.echo("there are no clusters: start one with `trellis dev up`")


def ensure_tools(*, jaeger: bool, real_node: bool, wadm: bool) -> None:
    """Install the tools and print their paths."""
    wanted = [*tools.DEFAULT, *(["jaeger"] if jaeger else []), *(tools.REAL_NODE if real_node else ())]
    with reporting_errors("getting the tools"), on_stderr() as progress:
        if real_node:
            requirements.require()
            how = How(progress, threading.Event())
            realnode.prepare(how)
            node_images.hello_wasm_image(wasmshim.hello_module(how), how)
            wasmshim.shim(how)
        found = cluster.prepare(wanted, progress)
        if wadm:
            found |= lattice_servers.lattice_servers(How(progress, threading.Event()))
    for tool, program in found.items():
        typer.echo(f"{tool:<24} {program}")


def summary(info: ClusterInfo, running: Sequence[str]) -> str:
    """Return the addresses of a cluster, and the next steps; ``running``: the services that lead already."""
    named = "" if info.name == "default" else f" --name {info.name}"
    lines = [
        f"Cluster '{info.name}' is running. Environment for kubectl and the services:",
        f"  export KUBECONFIG={info.kubeconfig}",
        f"  export TRELLIS_NATS_URL={info.nats_url}",
    ]
    if info.otlp_endpoint is not None:
        lines.append(f"  export TRELLIS_OTLP_ENDPOINT={info.otlp_endpoint} TRELLIS_JAEGER_URL={info.jaeger_url}")
    lines += [f"Real node {node.name}: {node.address}, overlay: {node.root}" for node in info.real_nodes]
    if info.lattice_nats is not None:
        lines.append(f"Lattices for pods on real nodes: natsAddress: {info.lattice_nats}")
    lines += [_of_host(host) for host in info.lattice_hosts]
    lines += [
        f"Programs, including kubectl: {info.bin_dir}",
        f"Running services with a Lease: {', '.join(running)}" if running else "Start the services: trellis run",
        f"Stop the cluster: trellis dev down{named}",
    ]
    return "\n".join(lines)


def _describe(info: ClusterInfo) -> str:
    expected = [tool for tool in PORTS if tool != "jaeger" or info.jaeger_url is not None]
    expected += ["network", *(node.name for node in info.real_nodes)] if info.real_nodes else []
    expected += ["wadm", *(host.name for host in info.lattice_hosts)] if info.lattices else []
    expected += ["lattice-nats"] if info.lattice_nats is not None else []
    ended = [tool for tool in expected if tool not in info.pids]
    health = f"stopped: {', '.join(ended)}; restart: trellis dev up --name {info.name}" if ended else "running"
    lines = [f"{info.name}  ({health})", f"  KUBECONFIG={info.kubeconfig}", f"  TRELLIS_NATS_URL={info.nats_url}"]
    if info.jaeger_url is not None:
        lines += [f"  TRELLIS_OTLP_ENDPOINT={info.otlp_endpoint}", f"  traces: {info.jaeger_url}/api/services"]
    lines += [f"  {_of_host(host)}" for host in info.lattice_hosts if host.name in info.pids]
    return "\n".join(lines)


def _of_host(host: LatticeHost) -> str:
    labels = "".join(f" {key}={value}" for key, value in host.labels.items())
    return f"wasmCloud host of lattice '{host.lattice}': {host.id}{labels}"
