"""docs/console/api.md is the contract of the console: its fields, addresses and words are those of the code."""

from __future__ import annotations

import asyncio
import inspect
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from console.domain.limits import NAMESPACES, PAGE_EVENTS, STREAMS_EACH
from console.http.routes import Routes
from console.live import streaming, viewer_registry
from console.live.bus_connection import BusConnection
from console.live.feed import STREAMS, Feed, item_of
from console.settings import Settings
from support.console import seen_objects as objects
from support.v2.entities import seen
from support.wasm_pods.entities import seen_wasm
from trellis.bus.streams.stream_reader import Stored
from trellis.bus.streams.tail import event_of
from trellis.lattice.domain.service_views import view_pod
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.read_model.entities.cards import (
    view_app_card,
    view_controller_card,
    view_group_card,
    view_service_card,
    view_shim_card,
)
from trellis.read_model.entities.composing import PARTS, Composer
from trellis.read_model.entities.composing_v2 import HEARTBEATS, INSTALLED, RECHECK_SECONDS
from trellis.read_model.entities.composing_v2 import PARTS as V2_PARTS
from trellis.read_model.entities.composing_wasm import PARTS as WASM_PARTS
from trellis.read_model.entities.entities import PartStatus
from trellis.read_model.entities.wasm_entities import NODES_MOST
from trellis.read_model.health import Health as HealthState
from trellis.read_model.live.parts_v2 import v2_parts
from trellis.read_model.live.parts_wasm import wasm_parts
from trellis.read_model.live.watching import Place, parts_of, viewer_timings
from trellis.read_model.tables.nodes import NodeState
from trellis.read_model.tables.rollout import NodeStage, Phase
from trellis.telemetry.health import Health
from trellis.v2.timings import V2Timings

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "console.md").read_text() + (DOCS / "console/api.md").read_text()
COMMON = {"kind", "namespace", "name", "health", "reason", "message"}


def section(title: str) -> str:
    return re.split(r"^##+ ", PAGE.partition(f" {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def filled(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest | {"metadata": {"uid": "u", "resourceVersion": "1"} | manifest["metadata"]}


def every_kind() -> dict[str, dict[str, Any]]:
    composer = Composer()
    for part, key, view in (
        ("nodes", "n1", view_node(filled(objects.opted_in()))),
        ("shims", "spin", view_shim_card(filled(objects.shim()))),
        ("groups", "team/hosts", view_group_card(filled(objects.group(pods=("hosts-1",))))),
        ("pods", "team/hosts-1", view_pod(filled(objects.host_pod()))),
        ("applications", "team/shop", view_app_card(filled(objects.application()))),
        ("services", "team/shop", view_service_card(filled(objects.service()))),
        ("controllers", "team/ring", view_controller_card(filled(objects.controller()))),
    ):
        composer.take(part, key, view)
    composer.report(PartStatus("nodes", synced=True, lacking={}))
    wasm = {id_: item for id_, item in seen_wasm().items() if item["kind"] != "part"}
    found = composer.flush() | seen("03", 2.2) | seen("15", 30) | wasm
    return {str(item["kind"]): dict(item) for item in found.values() if item is not None}


def documented() -> dict[str, set[str]]:
    """Return by kind the fields that the page lists: what stands in code, outside of brackets."""
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.*) \|$", section("Entities"), re.MULTILINE)
    found: dict[str, set[str]] = {}
    for kinds, text in rows:
        plain = re.sub(r"`[{\[][^`]*`", "", text)
        while (shorter := re.sub(r"\([^()]*\)", "", plain)) != plain:
            plain = shorter
        fields = set(re.findall(r"`(\w+)`", plain.partition(" with stage ")[0].partition(". Its rollout")[0]))
        found |= dict.fromkeys(re.findall(r"\w+", kinds), fields)
    return found


@pytest.mark.parametrize("kind", sorted(every_kind()))
def test_the_fields_of_an_entity_are_documented(kind: str) -> None:
    assert set(every_kind()[kind]) - COMMON == documented()[kind]
    assert set(every_kind()[kind]) >= COMMON


def test_every_documented_kind_exists() -> None:
    assert set(documented()) - COMMON - {"namespace"} == set(every_kind())


def test_the_values_of_fields_are_documented() -> None:
    page = section("Entities")
    for values in (HealthState, NodeState, NodeStage, Phase):
        for value in values:
            assert re.search(rf"\b{value.value}\b", page), value


def test_each_part_is_documented() -> None:
    page = section("Entities")
    assert not [part for part in (*PARTS, *V2_PARTS, *WASM_PARTS, INSTALLED, HEARTBEATS) if f"`{part}`" not in page]


async def test_each_address_is_documented_and_answers() -> None:
    settings, feed = Settings(), Feed()
    cluster: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    link = BusConnection("nats://127.0.0.1:1", None, cluster, feed, Health("c"))
    router = web.Application().router
    Routes(settings, None, None, feed, link, None).add_to(router)  # type: ignore[arg-type]
    page = section("HTTP API of the console")
    for resource in router.resources():
        path = re.sub(r"/\{.*", "", resource.canonical)
        assert f"{path}" in page, path


def test_reasons_for_the_end_of_a_stream_are_documented() -> None:
    source = inspect.getsource(streaming) + inspect.getsource(viewer_registry)
    found = re.findall(r'"(\w+)"\),\n|\.end\("(\w+)"\)|\b(?:reason|cause)(?:: str)? = "(\w+)"', source)
    reasons = {*found, ("again", "", "")}
    assert {"".join(reason) for reason in reasons} == set(
        re.findall(r"^\| `(\w+)` \| ", section("Streams"), re.MULTILINE)
    )


def test_the_fields_of_an_event_are_documented() -> None:
    stored = Stored(1, datetime(2026, 1, 1, tzinfo=UTC), "trellis.evt.c.node.ready.n1", {}, b"{}", 2)
    example = section("Events").partition("```json")[2].partition("```")[0]
    assert set(item_of(event_of(stored)).document) == set(
        re.findall(r'"(\w+)":', example.replace('{"name": "n1"}', ""))
    )


def test_figures_that_the_page_has_are_those_of_the_code() -> None:
    assert f"at most {NAMESPACES}." in section("Model stream")
    assert f"ids of {NODES_MOST} nodes" in section("Entities")
    assert f"at most {PAGE_EVENTS})" in section("Past events")
    entities = " ".join(section("Entities").split())
    assert f"last {V2Timings().silence:g} s" in entities
    assert f"each {RECHECK_SECONDS:g} s while" in entities
    assert f"every {viewer_timings().absent:g} s" in entities
    limits = " ".join(section("Performance and limits").split())
    for parts, values in (
        (parts_of(Place("a", "b")), "11 watches (5, and 6"),
        (v2_parts(), "8 more with wasmCloud v2 (2, and 6"),
        (wasm_parts(), "10 more while a Shim exists (1, and 9"),
    ):
        fixed, each = (sum(len(part.places(names)) for part in parts) for names in ((), ("a", "b")))
        assert values.startswith(f"{fixed} ")
        assert values.endswith(f"and {each - fixed}")
        assert values in limits
    assert f"{STREAMS_EACH} streams each" in limits
    assert f"At most {Settings().console_viewers} viewers" in limits
    for stream in STREAMS:
        assert f"`{stream}`" in section("Events")
