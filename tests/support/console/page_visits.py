"""A viewer of the console's page with all permissions, and a cluster, a bus and a Jaeger to view.

In: the suite's servers. Out: a console that shows them, and a token. Called by the tests of the page.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.console.page_world import PageWorld
from support.console.viewing import READ_ALL, Accounts, RunningConsole, rule, run_console
from support.nats.buses import Buses, Listener, opted_out
from support.nats.raw_nats import raw_publish
from support.suite.jaeger import Jaeger
from support.wadm.applications_kind import ApplicationsKind
from trellis.bus.bus import Bus
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import NODE_WATCHER, PROVISIONER, event_subject
from trellis.telemetry import Metrics, setup
from trellis.telemetry.health import Health
from trellis_dev.definitions import define_kinds
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.progress import Quiet


@dataclass
class Visit:
    """A cluster, a bus, and accounts of viewers."""

    cluster: ClusterInfo
    world: PageWorld
    accounts: Accounts
    nats: NatsServer
    token: str = ""
    buses: list[Buses] = field(default_factory=list)

    @property
    def own(self) -> str:
        return self.world.own

    @asynccontextmanager
    async def console(self, **settings: Any) -> AsyncIterator[RunningConsole]:
        """A console on a bus of its own cluster."""
        given = {"nats_url": self.nats.url, "cluster": self.own} | settings
        try:
            async with run_console(self.cluster, **given) as console:
                yield console
        finally:
            for buse in self.buses:
                await buse.close()

    async def bus(self, service: str = NODE_WATCHER) -> Bus:
        item = Buses(self.nats.url, self.own)
        self.buses.append(item)
        bus = item.new(service)
        await bus.connect()
        return bus

    async def publish(self, bus: Bus, *names: str) -> None:
        for name in names:
            await bus.publish(opted_out(name), dedup=secrets.token_hex(8))

    async def dead_letter(self, name: str) -> None:
        """Publish a message that is not an event, which becomes a dead letter."""
        provisioner = await self.bus(PROVISIONER)
        provisioner.subscribe("nodes", [NodeOptedOut], Listener())
        await provisioner.start()
        subject = event_subject(self.own, opted_out(name))
        raw_publish(int(self.nats.url.rpartition(":")[2]), subject.encode(), b"garbage")

    async def change(self, jaeger: Jaeger, name: str) -> str:
        """Publish an event within a trace with spans of two services; return the id of the trace."""
        watcher = setup(NODE_WATCHER, metrics=Metrics(), otlp_endpoint=jaeger.otlp)
        provisioner = setup(PROVISIONER, metrics=Metrics(), otlp_endpoint=jaeger.otlp)
        bus = Bus(
            self.nats.url,
            cluster=self.own,
            service=NODE_WATCHER,
            telemetry=watcher,
            health=Health(NODE_WATCHER),
            cluster_uid=f"uid-of-{self.own}",
        )
        await bus.connect()
        with watcher.tracer.start_as_current_span(f"reconcile node {name}") as root:
            trace = f"{root.get_span_context().trace_id:032x}"
            await bus.publish(opted_out(name), dedup=secrets.token_hex(8))
            with provisioner.tracer.start_as_current_span("plan rollout") as span:
                span.set_attribute("trellis.nodes", 3)
                with provisioner.tracer.start_as_current_span("create installer job"):
                    pass
        await bus.close()
        for telemetry in (watcher, provisioner):
            await telemetry.shutdown(10)
        return trace


@pytest.fixture
def visit(cluster: ClusterInfo, cluster_api: Api, namespace: str, nats_server: NatsServer) -> Iterator[Visit]:
    """A cluster with all kinds of objects, and a token with all permissions."""
    define_kinds(cluster, Quiet())
    kind = ApplicationsKind(cluster_api)
    ours = kind.ensure()
    accounts = Accounts(cluster_api, namespace)
    world = PageWorld(Path(cluster.kubeconfig), f"w{secrets.token_hex(3)}", namespace, cluster_api)
    found = Visit(cluster, world, accounts, nats_server)
    try:
        world.fill()
        found.token = accounts.create("jane")
        accounts.allow("jane", [*READ_ALL, rule("console.trellis.dev", "traces,messages,lattices", "get")])
        yield found
    finally:
        world.leave()
        accounts.leave()
        if ours:
            kind.clear()
