"""The cluster of the demo: a local control plane, or the cluster of the current context of the user.

In: options. Out: addresses, environment and nodes for the run. Called by the demo.
Invariant: at the end of the block, everything started here has ended, except a kept cluster after a successful run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trellis.config.settings import load as load_settings
from trellis.crds.kinds import APPLICATIONS
from trellis_cli.common.errors import CommandError
from trellis_cli.common.settings import ClientSettings
from trellis_dev.definitions import define_kinds
from trellis_dev.demo import real_node
from trellis_dev.demo.commands import own_command
from trellis_dev.demo.kubelets import INSTALLER_STAGE
from trellis_dev.localcluster import ClusterInfo, LocalClusterError, down, local_cluster, status, up
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.guard import guard
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.nodes import node_name
from trellis_dev.localcluster.own_images import INSTALLER
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.processes import ProcessRecord
from trellis_dev.localcluster.progress import Progress, on_stderr
from trellis_dev.localcluster.state import ClusterState, load, save

NAME: Final = "demo"
_FOREIGN: Final = ("TRELLIS_", "OTEL_", "KUBECONFIG")
_RUN: Final = {
    "TRELLIS_NAMESPACE": "trellis-system",
    "TRELLIS_INSTALLER_NAMESPACE": "trellis-installers",
    "TRELLIS_LOG_FORMAT": "json",
}


@dataclass(frozen=True, slots=True)
class Target:
    """Cluster of a run. ``environment``: of the services; ``nodes``: to provision; ``seconds``: timeout.

    ``own``: environment of this process without variables of Trellis; ``folder``: for files of the demo; ``images``:
    those of the real node, if there is one.
    """

    settings: ClientSettings
    environment: Mapping[str, str]
    log: Path
    token: str
    nodes: tuple[str, ...]
    seconds: float
    cluster: ClusterInfo | None = None
    own: Mapping[str, str] = field(default_factory=dict)
    folder: Path = Path()
    images: real_node.Images | None = None


def refuse_if_there() -> None:
    """Raise CommandError if the cluster of a demo exists."""
    if not status(NAME):
        return
    state = load(Layout.of(NAME))
    if state is not None and state.starter is not None:
        raise CommandError(f"another demo is running (process {state.starter.pid}): wait, or terminate it")
    raise CommandError(
        f"cluster '{NAME}' exists from an earlier --keep: inspect it with `{own_command()} dev status`, "
        f"or remove it with `{own_command()} dev down --name {NAME}` and rerun the demo"
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """Options of a local cluster: number of simulated nodes, and whether it is kept, has Jaeger or a real node.

    ``checkout``: directory of the sources, from which the images of a real node are built.
    """

    nodes: int
    keep: bool
    jaeger: bool
    real_node: bool
    checkout: Path


@asynccontextmanager
async def local(wanted: Wanted) -> AsyncIterator[Target]:
    """Yield a local cluster with simulated nodes; a cluster to keep stays if the block succeeds.

    Raises:
        LocalClusterError: it cannot be started.
    """
    images = await _images(wanted) if wanted.real_node else None
    async with _kept(wanted) if wanted.keep else _owned(wanted) as info:
        layout = Layout.of(info.name)
        state = _state(layout)
        where = {
            "TRELLIS_KUBECONFIG": str(info.kubeconfig),
            "TRELLIS_NATS_URL": info.nats_url,
            # Not the default directory: another controller_host may use it.
            "TRELLIS_CONTROLLER_DATA_DIR": str(layout.root / "controllers"),
        }
        if info.otlp_endpoint is not None:
            where["TRELLIS_OTLP_ENDPOINT"] = info.otlp_endpoint
        if images is not None:
            where |= {"TRELLIS_NODE_INSTALLER_IMAGE": INSTALLER.name, "TRELLIS_INSTALLER_PULL_POLICY": "Never"}
            await asyncio.to_thread(real_node.load, info.name, images)
        own = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        yield Target(
            settings=load_settings(
                ClientSettings,
                kubeconfig=info.kubeconfig,
                context=f"trellis-{info.name}",
                nats_url=info.nats_url,
                namespace=_RUN["TRELLIS_NAMESPACE"],
                installer_namespace=_RUN["TRELLIS_INSTALLER_NAMESPACE"],
            ),
            environment=own | _RUN | where,
            log=layout.log("trellis"),
            token=state.token,
            nodes=tuple(map(node_name, range(wanted.nodes))),
            seconds=60.0 + wanted.nodes,
            cluster=info,
            own=own,
            folder=layout.root,
            images=images,
        )


def adopt(info: ClusterInfo, name: str, process: ProcessRecord) -> None:
    """Register a process as a component of a kept cluster, so that `trellis dev down` ends it."""
    layout = Layout.of(info.name)
    state = _state(layout)
    state.processes[name] = process
    save(layout, state)


@asynccontextmanager
async def current_context(settings: ClientSettings, nodes: tuple[str, ...]) -> AsyncIterator[Target]:
    """Yield the existing cluster, with a nats-server for this run; the services keep the TRELLIS_* variables."""
    directory = Path(tempfile.mkdtemp(prefix="trellis-demo-"))
    token = secrets.token_hex(16)
    watcher = await asyncio.to_thread(guard, directory, token)
    server = NatsServer(directory / "nats")
    try:
        await asyncio.to_thread(server.__enter__)
        where = {"TRELLIS_NATS_URL": server.url, "TRELLIS_LOG_FORMAT": "json"}
        defaults = {"TRELLIS_CONTROLLER_DATA_DIR": str(directory / "controllers")}
        yield Target(
            settings=settings.model_copy(update={"nats_url": server.url}),
            environment=defaults | os.environ | where,
            log=directory / "trellis.log",
            token=token,
            nodes=nodes,
            seconds=900.0,
        )
    finally:
        await asyncio.to_thread(server.close)
        await asyncio.to_thread(watcher.abandon)


def rescue_log(target: Target) -> Path | None:
    """Copy the log of the services to a file that outlives the run; None if there is no log."""
    if not target.log.is_file():
        return None
    descriptor, name = tempfile.mkstemp(prefix="trellis-demo-", suffix=".log")
    os.close(descriptor)
    return Path(shutil.copyfile(target.log, name))


async def _images(wanted: Wanted) -> real_node.Images:
    """Build the images of the real node; a cancellation aborts the build."""
    abort = threading.Event()
    try:
        with on_stderr() as progress:
            return await asyncio.to_thread(real_node.prepare, wanted.checkout, How(progress, abort))
    finally:
        abort.set()


@asynccontextmanager
async def _owned(wanted: Wanted) -> AsyncIterator[ClusterInfo]:
    async with contextlib.AsyncExitStack() as stack:
        # The display ends when the cluster is ready, the cluster when the block ends.
        with on_stderr() as progress:
            cluster = local_cluster(
                NAME,
                nodes=wanted.nodes,
                kwok_stages=[INSTALLER_STAGE],
                real_nodes=int(wanted.real_node),
                progress=progress,
            )
            info = await stack.enter_async_context(cluster)
            await asyncio.to_thread(define_kinds, info, progress, APPLICATIONS)
        yield info


@asynccontextmanager
async def _kept(wanted: Wanted) -> AsyncIterator[ClusterInfo]:
    with on_stderr() as progress:
        starting = asyncio.ensure_future(asyncio.to_thread(_up, wanted, progress))
        try:
            info = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: the cluster that it starts is stopped.
            with contextlib.suppress(LocalClusterError):
                await starting
                await asyncio.to_thread(down, NAME)
            raise
    try:
        yield info
    except BaseException:
        await asyncio.to_thread(down, NAME)
        raise


def _up(wanted: Wanted, progress: Progress) -> ClusterInfo:
    info = up(
        NAME,
        nodes=wanted.nodes,
        jaeger=wanted.jaeger,
        kwok_stages=[INSTALLER_STAGE],
        real_nodes=int(wanted.real_node),
        progress=progress,
    )
    try:
        define_kinds(info, progress, APPLICATIONS)
    except BaseException:
        down(NAME)
        raise
    return info


def _state(layout: Layout) -> ClusterState:
    state = load(layout)
    if state is None:
        raise CommandError(f"cluster '{layout.name}' was removed during the demo: rerun the demo")
    return state
