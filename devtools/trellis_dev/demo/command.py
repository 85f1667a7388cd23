"""The command line of the demo, and the order of its steps.

In: flags. Out: exit status 0 and a report, or 1 and a line with the error and the path of the log. Called by the
command line. Invariant: at exit, everything that the demo started has ended, except with ``--keep``.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from trellis.bus.errors import BusError
from trellis.config.settings import SettingsError
from trellis.kube.errors import KubeError
from trellis.read_model.tables.nodes import NodeRow, NodeState
from trellis_cli.common.errors import CommandError, describe_error, exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.messages import EXIT_INTERRUPTED, print_note
from trellis_cli.common.output import DocumentOption, Format
from trellis_dev.demo import real_node
from trellis_dev.demo.commands import Commands, Shown
from trellis_dev.demo.consent import Chosen, choose
from trellis_dev.demo.display import Display, on_stderr
from trellis_dev.demo.report import Outcome, show
from trellis_dev.demo.scenario import Scenario, Stage, run_scenario
from trellis_dev.demo.services import KUBELETS, RUN, Program, Services
from trellis_dev.demo.target import Target, Wanted, adopt, current_context, local, refuse_if_there, rescue_log
from trellis_dev.demo.viewing import CHECKOUT, Page, open_console, ready_page
from trellis_dev.demo.watching import Watching
from trellis_dev.localcluster import ClusterInfo, LocalClusterError
from trellis_dev.localcluster.otlp import OtlpReceiver

_EXIT_TERMINATED: Final = 128 + signal.SIGTERM


def demo(  # noqa: PLR0913, PLR0917 - options of a command line
    keep: Annotated[
        bool, typer.Option("--keep", help="keep the cluster, the services and the console running")
    ] = False,
    jaeger: Annotated[
        bool, typer.Option("--jaeger", help="with --keep: start Jaeger, so that the console shows traces")
    ] = False,
    nodes: Annotated[int, typer.Option(min=1, max=1000, help="number of simulated nodes")] = 20,
    real: Annotated[
        bool, typer.Option("--real-node", help="also run a Wasm pod on a real node (root, Linux, a checkout)")
    ] = False,
    use_current_context: Annotated[
        bool, typer.Option("--use-current-context", help="use the cluster of the kubeconfig's current context")
    ] = False,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="with --use-current-context: a node to provision (repeatable)"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="with --use-current-context: do not ask for confirmation")] = False,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Run a demo on simulated nodes.

    It starts a control plane and the services, and rolls a Shim out. One node fails and is rolled back; the demo shows
    the reason, repairs the node, resumes the rollout and prints the trace. --real-node ends with a pod that prints
    "hello from wasm". With --use-current-context it starts no cluster: it annotates the named nodes, and installer Jobs
    run on them.
    """
    with exit_on_error(LocalClusterError):
        if real and use_current_context:
            raise SettingsError("--real-node: applies to local clusters only")
        chosen = choose(node or [], use_current_context=use_current_context, keep=keep, yes=yes)
        if jaeger and not keep:
            raise SettingsError("--jaeger: needs --keep; a demo that ends prints its trace")
        if chosen is None:
            refuse_if_there()
        try:
            outcome = asyncio.run(_until_terminated(Wanted(nodes, keep, jaeger, real, CHECKOUT), chosen))
        except (KeyboardInterrupt, asyncio.CancelledError) as ended:
            print_note("demo interrupted; its processes have ended")
            interrupted = isinstance(ended, KeyboardInterrupt)
            raise SystemExit(EXIT_INTERRUPTED if interrupted else _EXIT_TERMINATED) from None
        show(outcome, output)


async def _until_terminated(wanted: Wanted, chosen: Chosen | None) -> Outcome:
    """Run the demo. SIGTERM cancels the run like Ctrl-C, so that everything is cleaned up."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    if wanted.keep:
        await ready_page()
    async with current_context(chosen.settings, chosen.nodes) if chosen else local(wanted) as target:
        try:
            return await _run(target, context=chosen.context if chosen else None, keep=wanted.keep)
        except (CommandError, KubeError, BusError) as error:
            log = rescue_log(target)
            where = f"; complete log of the services: {log}" if log else ""
            raise CommandError(describe_error(error) + where) from error


@dataclass(frozen=True, slots=True)
class _Seen:
    """The measurements of a run; ``trace``: the id of the trace of ``node``."""

    rows: Sequence[NodeRow]
    seconds: float
    most_in_progress: int
    node: str
    trace: str | None
    scenario: Scenario | None = None
    on_real_node: tuple[Shown, ...] = ()


async def _run(target: Target, *, context: str | None, keep: bool) -> Outcome:
    receiver = OtlpReceiver(onward=target.cluster.otlp_endpoint if target.cluster else None)
    services = Services(RUN, target.environment, target.log, target.token, "the services")
    page: Page | None = None
    try:
        kubelets = _start_kubelets(target, keep=keep)
        endpoint = await receiver.start()
        with on_stderr() as display:
            display.step("starting the services")
            await services.start(TRELLIS_OTLP_ENDPOINT=endpoint)
            display.step("the services are ready")
            seen = await _observe(target, (services, *kubelets), display)
            # This also flushes the telemetry, so that the trace is complete.
            await services.stop()
        if keep and target.cluster is not None:
            page = await _keep_running(services, target, target.cluster)
    except BaseException:
        await services.stop()
        raise
    finally:
        await receiver.stop()
    return Outcome(
        rows=seen.rows,
        provisioned=len(target.nodes),
        seconds=seen.seconds,
        most_in_progress=seen.most_in_progress,
        node=seen.node,
        trace=[span for span in receiver.spans if span.trace_id == seen.trace],
        kept=target.cluster if keep else None,
        page=page,
        context=context,
        scenario=seen.scenario,
        on_real_node=seen.on_real_node,
    )


async def _observe(target: Target, programs: Sequence[Program], display: Display) -> _Seen:
    """Provision the nodes while the services run, and return what was measured."""

    def check() -> None:
        for program in programs:
            program.check()

    async with (
        connected(target.settings) as kube,
        _running(Watching(kube, target.settings, target.nodes, display)) as watching,
    ):
        await watching.synced()
        if target.cluster is None:
            seconds = await _provision(watching, target, display, check)
            await watching.last_events()
            node = target.nodes[0]
            return _Seen(watching.rows(), seconds, watching.most_in_progress, node, watching.trace_ids.get(node))
        commands = Commands(target.cluster, target.own)
        stage = Stage(commands, kube, watching, target.nodes, target.folder, target.seconds, check)
        scenario = await run_scenario(stage, display)
        on_real_node = await real_node.show(commands, target.images, target.folder, display) if target.images else ()
        trace = watching.trace_ids.get(scenario.faulty)
        rows, most = watching.rows(), watching.most_in_progress
        return _Seen(rows, scenario.seconds, most, scenario.faulty, trace, scenario, on_real_node)


def _start_kubelets(target: Target, *, keep: bool) -> tuple[Program, ...]:
    """Start the kubelets of the simulated nodes, if there are any; the end of the cluster ends them."""
    if target.cluster is None:
        return ()
    log = target.log.with_name("kubelets.log")
    program = Program(KUBELETS, target.environment, log, target.token, "the simulated kubelets")
    process = program.spawn()
    if keep:
        adopt(target.cluster, "kubelets", process)
    return (program,)


async def _keep_running(services: Services, target: Target, cluster: ClusterInfo) -> Page:
    """Restart the services without a time limit, and start the console next to them under its own account."""
    adopt(cluster, "trellis", await services.start())
    log = target.log.with_name("console.log")
    console = Services((*RUN, "console"), target.environment, log, target.token, "the console")
    try:
        page = await open_console(cluster, console, target.settings.namespace)
    except BaseException:
        await console.stop()
        raise
    assert console.process is not None
    adopt(cluster, "console", console.process)
    return page


async def _provision(watching: Watching, target: Target, display: Display, check: Callable[[], None]) -> float:
    """Opt the nodes in; return the seconds until all of them were ready."""
    if missing := watching.missing():
        raise CommandError(f"node not found: {', '.join(missing)}; the cluster has {', '.join(watching.known())}")
    began = time.monotonic()
    await watching.opt_in()
    left = len(watching.known()) - len(target.nodes)
    display.step(f"annotated {len(target.nodes)} nodes, {left} not opted in")
    ready = dict.fromkeys(target.nodes, NodeState.READY)
    return await watching.reached(ready, target.seconds, check) - began


@asynccontextmanager
async def _running(watching: Watching) -> AsyncIterator[Watching]:
    tasks = [asyncio.ensure_future(work) for work in watching.tasks()]
    try:
        yield watching
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
