"""Permissions that messages of the bus require: that of their object, or that of all messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.access.permissions import MESSAGES, Permission, lattice_permission
from console.live.about import about_event, dead_letter_object
from trellis.bus.dead_letters.read import read_dead_letter
from trellis.bus.streams.stream_reader import Stored
from trellis.bus.streams.tail import event_of
from trellis.events.subjects import EVENT_SPECS, escape


def stored(subject: str, data: object = None, body: bytes | None = None) -> Stored:
    found = orjson.dumps({"data": data, "source": "/trellis/c/provisioner"}) if body is None else body
    return Stored(7, datetime(2026, 1, 1, tzinfo=UTC), subject, {}, found, len(found))


def permission_of(subject: str, data: object = None) -> Permission:
    return about_event(event_of(stored(subject, data))).permission


@pytest.mark.parametrize(
    ("subject", "data", "permission"),
    [
        ("trellis.evt.c.node.ready.n1", {}, Permission("", "nodes", "", "n1")),
        ("trellis.evt.c.node.ready.ip-10=2Eec2", {}, Permission("", "nodes", "", "ip-10.ec2")),
        ("trellis.evt.c.provision.failed.n1", {}, Permission("", "nodes", "", "n1")),
        ("trellis.evt.c.rollout.halted.d1", {"shim": "spin"}, Permission("runtime.spinkube.dev", "shims", "", "spin")),
        ("trellis.evt.c.host_pod.ready.team.p", {}, Permission("", "pods", "team", "p")),
        ("trellis.evt.c.hosts.ready.team.g", {}, Permission("k8s.wasmcloud.dev", "wasmcloudhostconfigs", "team", "g")),
        ("trellis.evt.c.application.synced.team.shop", {}, Permission("core.oam.dev", "applications", "team", "shop")),
        ("trellis.evt.c.secret.denied.team.db", {}, Permission("", "secrets", "team", "db")),
        ("trellis.evt.c.controller.trapped.team.x", {}, Permission("trellis.dev", "wasmcontrollers", "team", "x")),
        ("trellis.lattice.c.prod.host_started", {}, lattice_permission("prod")),
        (
            "trellis.evt.c.heartbeats.lost.Namespace.system",
            {},
            Permission("runtime.wasmcloud.dev", "hosts", "system", ""),
        ),
        ("trellis.evt.c.heartbeats.lost.Nats.host_manager", {}, Permission("runtime.wasmcloud.dev", "hosts", "", "")),
    ],
)
def test_an_event_is_visible_to_viewers_who_may_get_its_object(
    subject: str, data: object, permission: Permission
) -> None:
    assert permission_of(subject, data) == permission


@pytest.mark.parametrize(
    "subject",
    [
        "trellis.evt.c.rollout.halted.d1",
        "trellis.evt.c.weather.changed.n1",
        "trellis.evt.c.node.ready",
        "trellis.evt.c.node.ready.a.b",
        "trellis.evt.c.application.synced.shop",
        "trellis.evt.c.secret.denied.team.=",
        "trellis.evt.c",
        "trellis.evt",
        "somewhere.else",
        "trellis.evt.c.lattice.host_started.prod",
    ],
)
def test_a_message_without_an_object_is_visible_to_viewers_of_such_messages(subject: str) -> None:
    assert permission_of(subject, ["no", "object"]) == MESSAGES


def test_every_event_names_an_object_or_is_about_all_hosts() -> None:
    for spec in EVENT_SPECS:
        kinds = {"owner_kind": "Workload", "kind": "Deployment"}
        key = ".".join(kinds.get(field, "x") for field in spec.key_fields)
        data: dict[str, Any] = {"shim": "spin"} if spec.model.noun == "rollout" else {}
        about = about_event(event_of(stored(f"trellis.evt.c.{spec.tokens}.{key}", data)))
        assert about.permission != MESSAGES, spec.tokens
        assert bool(about.id) == (spec.model.noun != "heartbeats")


@pytest.mark.parametrize(
    ("kind", "resource"),
    [("WorkloadDeployment", "workloaddeployments"), ("WorkloadReplicaSet", "workloadreplicasets")],
)
def test_a_failed_workload_is_about_its_owner(kind: str, resource: str) -> None:
    subject = f"trellis.evt.c.workload.failed.team.{kind}.shop.PullFailed"
    assert permission_of(subject, {}) == Permission("runtime.wasmcloud.dev", resource, "team", "shop")


def test_a_failed_workload_of_an_unknown_kind_of_owner_is_about_no_object() -> None:
    assert permission_of("trellis.evt.c.workload.failed.team.Secret.shop.PullFailed", {}) == MESSAGES


@given(st.sampled_from(["node", "provision", "hosts", "application", "secret"]), st.text(), st.text())
def test_data_widens_nothing(noun: str, namespace: str, name: str) -> None:
    subject = f"trellis.evt.c.{noun}.x.{escape('team')}.{escape('shop')}"
    lies = {"name": name, "namespace": namespace, "node": name, "lattice": name, "kind": "Node"}
    assert permission_of(subject, lies) == permission_of(subject, {})


def test_a_dead_letter_is_visible_to_viewers_of_its_messages_object() -> None:
    letter = read_dead_letter(stored("trellis.dead.c.node_watcher.node.n1", body=b"garbage"), "e")
    assert dead_letter_object(letter).permission == Permission("", "nodes", "", "n1")
    unknown = read_dead_letter(stored("trellis.dead.c.node_watcher.unknown.x", body=b""), "e")
    assert dead_letter_object(unknown).permission == MESSAGES
    rollout = read_dead_letter(stored("trellis.dead.c.node_watcher.rollout.d1", body=b""), "e")
    assert dead_letter_object(rollout).permission == MESSAGES
    assert dead_letter_object(rollout, {"shim": "spin"}).permission.resource == "shims"
