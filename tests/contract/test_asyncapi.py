"""The subscriptions that FastStream documents are those of deploy/events and of the table of subjects."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from faststream.nats import NatsBroker
from faststream.specification.asyncapi.v3_0_0.schema import ApplicationSchema

from trellis.bus.bus import Bus
from trellis.bus.streams.specification import asyncapi_of
from trellis.bus.streams.streams import Epoch
from trellis.events.compatibility import breaking_changes
from trellis.events.subjects import EVENT_SPECS, STREAM_EVENTS, STREAM_SUBJECTS, EventSpec, event_filter, spec_of
from trellis.runtime.run import Base
from trellis.telemetry import Metrics, setup
from trellis.telemetry.health import Health
from trellis_dev.fakes.fake import FakeKube
from trellis_tools.events.schemas import ASYNCAPI_FILE, asyncapi, schema_file

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "deploy" / "events"
CLUSTER = "c1"
NOWHERE = "nats://127.0.0.1:1"
LISTENERS = sorted(path.parent.name for path in (ROOT / "services").glob("*/handlers.py"))


def document_of(service: str) -> dict[str, Any]:
    """FastStream's document of the subscriptions that the service's own wiring makes; nothing is connected."""
    telemetry = setup(service, metrics=Metrics())
    health = Health(service)
    bus = Bus(NOWHERE, cluster=CLUSTER, cluster_uid="uid", service=service, telemetry=telemetry, health=health)
    kube = FakeKube(telemetry=telemetry, health=health)
    settings = importlib.import_module(f"{service}.settings").Settings()
    importlib.import_module(f"{service}.app").compose(settings, Base(telemetry, health, kube, bus, CLUSTER))
    broker = NatsBroker(NOWHERE, apply_types=False, logger=None)
    kept = [subscription.register(broker, Epoch(0)) for subscription in bus._supervisor.subscriptions]
    assert kept, f"{service} has handlers.py and subscribes to nothing"
    return asyncapi_of(broker)


def consumed(service: str) -> list[EventSpec]:
    """The rows of the table that the service says it consumes."""
    return [spec_of(model) for model in importlib.import_module(f"{service}.handlers").CONSUMED]


def resolved(document: dict[str, Any], reference: str) -> dict[str, Any]:
    found = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[unquote(part).replace("~1", "/")]
    return found


def inlined(document: dict[str, Any], node: Any) -> Any:
    """Return a schema with what it refers to in its place: the two documents refer to different ones."""
    if isinstance(node, list):
        return [inlined(document, item) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return inlined(document, resolved(document, node["$ref"]))
    return {key: inlined(document, value) for key, value in node.items()}


def schemas(document: dict[str, Any], channel: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The schemas of a channel's messages, by CloudEvents type; schemas of data are put in their place."""
    (message,) = channel["messages"].values()
    payload = resolved(document, resolved(document, message["$ref"])["payload"]["$ref"])
    alternatives = [resolved(document, part["$ref"]) for part in payload["anyOf"]] if "anyOf" in payload else [payload]
    return {schema["properties"]["type"]["const"]: schema for schema in alternatives}


@pytest.mark.parametrize("service", LISTENERS)
def test_a_service_listens_on_the_subjects_of_the_events_it_consumes(service: str) -> None:
    channels = document_of(service)["channels"].values()
    assert {channel["address"] for channel in channels} == {
        event_filter(CLUSTER, spec.model) for spec in consumed(service)
    }


@pytest.mark.parametrize("service", LISTENERS)
def test_every_channel_of_a_service_is_a_channel_of_trellis(service: str) -> None:
    ours = json.loads((COMMITTED / ASYNCAPI_FILE).read_text())["channels"]
    by_address = {channel["address"].replace("{cluster}", CLUSTER): channel for channel in ours.values()}
    for channel in document_of(service)["channels"].values():
        subscribed = re.compile(re.escape(channel["address"]).replace(">", r"\{\w+\}(\.\{\w+\})*"))
        (address,) = [address for address in by_address if subscribed.fullmatch(address)]
        assert by_address[address]["x-stream"] == STREAM_EVENTS


@pytest.mark.parametrize("service", LISTENERS)
def test_the_messages_a_service_understands_are_those_of_the_table_with_the_committed_schemas(service: str) -> None:
    document = document_of(service)
    for channel in document["channels"].values():
        understood = schemas(document, channel)
        assert set(understood) == {spec.type for spec in consumed(service)}
        for ce_type, schema in understood.items():
            data = inlined(document, schema["properties"]["data"])
            whole = json.loads((COMMITTED / f"{ce_type}.json").read_text())
            committed = inlined(whole, whole)
            assert breaking_changes(committed, data) == []
            assert set(committed["properties"]) == set(data["properties"])


def test_no_service_consumes_an_event_that_no_service_publishes() -> None:
    documented = {operation.partition(".")[2] for operation in asyncapi()["operations"]}
    assert {spec.tokens for service in LISTENERS for spec in consumed(service)} <= documented


def test_the_asyncapi_document_is_valid_and_has_every_row_of_the_table() -> None:
    document = json.loads((COMMITTED / ASYNCAPI_FILE).read_text())
    ApplicationSchema.model_validate(document)
    assert set(document["channels"]) == {spec.tokens for spec in EVENT_SPECS}
    assert set(document["operations"]) == {f"{spec.owner}.{spec.tokens}" for spec in EVENT_SPECS}
    for spec in EVENT_SPECS:
        channel = document["channels"][spec.tokens]
        assert list(channel["messages"]) == [spec.type]
        assert channel["x-stream"] == spec.stream
        assert channel["address"].startswith(STREAM_SUBJECTS[spec.stream].removesuffix(">"))
        _, specific = channel["messages"][spec.type]["payload"]["allOf"]
        assert specific["properties"]["data"] == {"$ref": f"./{schema_file(spec)}"}


def test_every_reference_in_the_asyncapi_document_resolves() -> None:
    text = (COMMITTED / ASYNCAPI_FILE).read_text()
    document = json.loads(text)
    for reference in set(re.findall(r'"\$ref": "([^"]+)"', text)):
        if reference.startswith("#/"):
            assert resolved(document, reference), reference
        else:
            assert (COMMITTED / reference).is_file(), reference
