"""The users of the bus: each has the permissions that its service uses, and none that changes a stream."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

from support.suite.naming import lacking
from trellis.bus.accounts.accounts import ACCOUNTS_FILE, TEMPLATE_FILE, accounts, keys
from trellis.bus.accounts.permissions import CLI, PUBLISHERS, console_user, service_user, users
from trellis.bus.bus import Bus
from trellis.events.subjects import EVENT_SPECS, NODE_WATCHER
from trellis.kube.breaker import Breaker
from trellis.runtime.run import Base
from trellis.services import SERVICES, Service
from trellis.telemetry import Metrics, setup
from trellis.telemetry.health import Health
from trellis_dev.fakes.fake import FakeKube
from trellis_tools.bus_users import main

ROOT = Path(__file__).parents[3]
CLUSTERS = ["prod-eu", "prod-us"]


def matches(pattern: str, subject: str) -> bool:
    """NATS' rule: ``*`` is one token, ``>`` is one or more at the end."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(tokens) >= len(wanted) and matches(".".join(wanted[:-1]), ".".join(tokens[: len(wanted) - 1]))
    return len(wanted) == len(tokens) and all(want in {"*", token} for want, token in zip(wanted, tokens, strict=True))


def may_publish(user: Any, subject: str) -> bool:
    return any(matches(each, subject) for each in user.publish) and not any(
        matches(each, subject) for each in user.deny
    )


class Subscriber:
    """A bus that notes what is subscribed to."""

    def __init__(self) -> None:
        self.subscribed: list[str] = []

    def subscribe(self, name: str, *_: object) -> None:
        self.subscribed.append(name)


@pytest.mark.parametrize(
    "service",
    [service for service in SERVICES.values() if service.subscriptions or service.guards],
    ids=lambda item: item.name,
)
def test_the_registry_has_what_a_service_subscribes_to_and_what_its_breakers_guard(service: Service) -> None:
    subscriber, telemetry = Subscriber(), setup(service.package, metrics=Metrics())
    base = Base(telemetry, Health(service.package), FakeKube(telemetry=telemetry), cast("Bus", subscriber), "c")
    work = service.load("app").compose(service.settings(), base)
    assert tuple(subscriber.subscribed) == service.subscriptions
    owners = [getattr(loop, "__self__", None) for loop in work.background]
    assert [tuple(owner.scope.populations) for owner in owners if isinstance(owner, Breaker)] == [service.guards]


def test_every_owner_of_an_event_has_a_user() -> None:
    assert {spec.owner for spec in EVENT_SPECS} <= set(PUBLISHERS)


def test_an_event_is_published_by_its_owner_in_its_own_cluster_alone() -> None:
    everybody = [user for user in users(CLUSTERS) if user.name != CLI]  # people replay dead letters
    for spec, cluster in product(EVENT_SPECS, CLUSTERS):
        who = [user.name for user in everybody if may_publish(user, f"trellis.evt.{cluster}.{spec.tokens}.n1")]
        assert who == [f"{spec.owner}.{cluster}"]


@pytest.mark.parametrize("verb", ["DELETE", "PURGE", "UPDATE", "SNAPSHOT", "RESTORE", "PEER.REMOVE", "LEADER.STEPDOWN"])
def test_no_user_may_change_a_stream(verb: str) -> None:
    streams = ("TRELLIS_EVENTS", "TRELLIS_LATTICE", "TRELLIS_DEAD", "KV_TRELLIS_CLUSTERS")
    assert not [
        user.name
        for user in users(CLUSTERS)
        for stream in streams
        if may_publish(user, f"$JS.API.STREAM.{verb}.{stream}")
    ]


@pytest.mark.parametrize(
    "subject",
    [
        "$JS.API.CONSUMER.MSG.NEXT.TRELLIS_EVENTS.{}",
        "$JS.API.CONSUMER.CREATE.TRELLIS_EVENTS.{}",
        "$JS.API.CONSUMER.CREATE.TRELLIS_EVENTS.{}.trellis.evt.>",
        "$JS.API.CONSUMER.DURABLE.CREATE.TRELLIS_EVENTS.{}",
        "$JS.API.CONSUMER.DELETE.TRELLIS_EVENTS.{}",
        "$JS.API.CONSUMER.PAUSE.TRELLIS_EVENTS.{}",
        "$JS.ACK.TRELLIS_EVENTS.{}.1.2.3.4.5",
        "$JS.ACK.hub.hash.TRELLIS_EVENTS.{}.1.2.3.4.5",
    ],
)
def test_a_durable_is_its_services_alone(subject: str) -> None:
    who = {user.name for user in users(CLUSTERS) if may_publish(user, subject.format("provisioner-nodes-prod-eu"))}
    assert who <= {"provisioner.prod-eu"}


def test_an_inbox_is_one_users_alone() -> None:
    everybody = users(CLUSTERS)
    inboxes = [next(each for each in user.subscribe if each.startswith("_INBOX")) for user in everybody]
    for user, inbox in zip(everybody, inboxes, strict=True):
        readable = [other for other in inboxes if any(matches(each, other[:-1] + "x") for each in user.subscribe)]
        assert readable == [inbox]


def test_the_committed_files_are_the_generated_ones() -> None:
    assert main(["--check", str(ROOT / "deploy" / "nats")]) == 0


def test_a_missing_and_a_changed_file_fail_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
    (tmp_path / TEMPLATE_FILE).unlink()
    (tmp_path / ACCOUNTS_FILE).write_text("accounts {}\n")
    assert main(["--check", str(tmp_path)]) == 1
    out = capsys.readouterr().err
    assert lacking(out, f"{tmp_path / ACCOUNTS_FILE}", f"{tmp_path / TEMPLATE_FILE}", "make generate") == []


def test_every_user_has_a_key_of_its_own_in_the_template() -> None:
    names = [user.variable for user in users(CLUSTERS)]
    assert len(set(names)) == len(names)
    template, configuration = keys(CLUSTERS, {}), accounts(CLUSTERS)
    assert all(template.count(f"{name}: ") == 1 and configuration.count(f"nkey: ${name}\n") == 1 for name in names)


def test_a_cluster_is_one_token_wherever_it_stands() -> None:
    user = service_user(NODE_WATCHER, "a.b")
    assert not [subject for subject in (*user.publish, *user.subscribe) if ".a.b" in subject or "-a.b" in subject]


@pytest.mark.parametrize("stream", ["TRELLIS_EVENTS", "TRELLIS_LATTICE", "TRELLIS_DEAD"])
def test_the_console_reads_its_own_cluster_alone_and_writes_nothing(stream: str) -> None:
    console = console_user("prod-eu", CLUSTERS)
    root = {"TRELLIS_EVENTS": "trellis.evt", "TRELLIS_LATTICE": "trellis.lattice", "TRELLIS_DEAD": "trellis.dead"}
    rest = "*.>" if stream == "TRELLIS_LATTICE" else ">"
    create = f"$JS.API.CONSUMER.CREATE.{stream}.any"
    assert may_publish(console, f"{create}.{root[stream]}.prod-eu.{rest}")
    assert not may_publish(console, create)
    assert not may_publish(console, f"{create}.{root[stream]}.prod-us.{rest}")
    assert not may_publish(console, f"{create}.{root[stream]}.{rest}")
    assert not may_publish(console, f"{root[stream]}.prod-eu.node.ready.n1")
    for verb in ("STREAM.CREATE", "STREAM.MSG.GET", "STREAM.MSG.DELETE", "STREAM.DELETE", "DIRECT.GET"):
        assert not may_publish(console, f"$JS.API.{verb}.{stream}")
    assert not may_publish(console, "$KV.TRELLIS_CLUSTERS.prod-eu")
