"""`trellis trace` as a user runs it, against a real Jaeger and a real NATS."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator

import pytest
from opentelemetry import trace as api

from support.nats.buses import opted_out
from support.suite.jaeger import Jaeger
from support.suite.typed import Done, bare_environment, typed_meanwhile
from trellis.bus.bus import Bus
from trellis.events.subjects import NODE_WATCHER
from trellis.telemetry import Metrics, Telemetry, setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.jaeger]

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
async def telemetry(jaeger: Jaeger) -> AsyncIterator[Telemetry]:
    made = setup("provisioner", metrics=Metrics(), cluster="c1", otlp_endpoint=jaeger.otlp)
    yield made
    await made.shutdown()


async def trellis(*arguments: str, **environment: str) -> Done:
    return await typed_meanwhile(bare_environment(**environment), "trace", *arguments)


async def a_trace(telemetry: Telemetry, jaeger: Jaeger) -> str:
    """Send a trace of three spans, one of which failed; return its id once Jaeger has it."""
    root = telemetry.tracer.start_span("reconcile jobs node-1")
    with api.use_span(root, end_on_exit=True):
        with telemetry.tracer.start_as_current_span("create installer job"):
            pass
        failed = telemetry.tracer.start_span("kubernetes CREATE jobs")
        failed.set_status(api.StatusCode.ERROR, "Forbidden: no")
        failed.end()
    trace_id = f"{root.get_span_context().trace_id:032x}"
    await telemetry.shutdown()
    await jaeger.until(
        "trellis-provisioner", lambda spans: spans[0].trace_id == trace_id and len(spans) == 3, "three spans"
    )
    return trace_id


async def test_a_trace_is_shown_as_a_tree_and_as_json(telemetry: Telemetry, jaeger: Jaeger) -> None:
    trace_id = await a_trace(telemetry, jaeger)
    shown = await trellis(trace_id, "--jaeger", jaeger.url)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"trace {trace_id}" in shown.stdout
    assert "└ kubernetes CREATE jobs  ✗ Forbidden: no" in shown.stdout
    assert "3 spans, 1 service" in shown.stdout
    document = await trellis(trace_id.upper(), "-o", "json", TRELLIS_JAEGER_URL=jaeger.url)
    found = json.loads(document.stdout)
    assert (found["trace"], found["whole"]) == (trace_id, True)
    assert [span["depth"] for span in found["spans"]] == [0, 1, 1]


async def test_an_objects_trace_is_that_of_its_last_event(nats_server: NatsServer, jaeger: Jaeger) -> None:
    cluster = f"c{secrets.token_hex(3)}"
    telemetry = setup(NODE_WATCHER, metrics=Metrics(), cluster=cluster, otlp_endpoint=jaeger.otlp)
    name = f"node-{cluster}.example"
    bus = Bus(
        nats_server.url,
        cluster=cluster,
        cluster_uid=cluster,
        service=NODE_WATCHER,
        telemetry=telemetry,
        health=Health(NODE_WATCHER),
    )
    try:
        await bus.connect()
        for number in range(2):
            with telemetry.tracer.start_as_current_span(f"change {number}"):
                await bus.publish(opted_out(name), dedup=f"{cluster}.{number}")
    finally:
        await bus.close()
        await telemetry.shutdown()
    await jaeger.until(
        "trellis-node-watcher", lambda spans: {"change 1"} < {span.name for span in spans}, "the second change"
    )
    environment = {"TRELLIS_NATS_URL": nats_server.url, "TRELLIS_CLUSTER": cluster, "TRELLIS_JAEGER_URL": jaeger.url}
    shown = await trellis(f"node/{name}", **environment)
    assert shown.returncode == 0, shown.stderr
    assert "change 1" in shown.stdout
    assert "└ publish node.opted_out" in shown.stdout
    trace_id = shown.stdout.split()[1]
    by_digits = await trellis(trace_id[:8], **environment)
    assert (by_digits.returncode, by_digits.stdout.split()[1]) == (0, trace_id), by_digits.stderr
    nobody = await trellis("node/nobody", **environment)
    assert nobody.returncode == 1
    assert "node nobody" in nobody.stderr
    assert "trellis events replay" in nobody.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("a" * 32,), 2, ("--jaeger: ", "TRELLIS_JAEGER_URL")),
        (("a" * 32, "--jaeger", "jaeger:16686"), 2, ("'jaeger:16686'", "http://host")),
        (("a" * 32, "--jaeger", NOBODY), 1, (NOBODY, "--jaeger")),
        (("abc", "--jaeger", NOBODY), 2, ('"abc"', "node")),
        (("shim/spin", "--jaeger", NOBODY), 2, ("trace node/", "rollout status spin")),
        (("configmap/web", "--jaeger", NOBODY), 2, ('"configmap"', "node")),
    ],
    ids=["no-jaeger", "no-address", "nobody-there", "no-id", "a-shim", "another-kind"],
)
async def test_a_mistake_is_one_line_that_names_the_remedy(
    arguments: tuple[str, ...], status: int, named: tuple[str, ...]
) -> None:
    done = await trellis(*arguments)
    assert done.returncode == status
    for word in named:
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


async def test_a_missing_trace_and_a_server_other_than_jaeger_are_distinguished(jaeger: Jaeger) -> None:
    missing = await trellis("f" * 32, "--jaeger", jaeger.url)
    assert missing.returncode == 1
    assert f"trace {'f' * 32}" in missing.stderr
    other = await trellis("f" * 32, "--jaeger", jaeger.otlp)
    assert other.returncode == 1
    assert "404 Not Found" in other.stderr
