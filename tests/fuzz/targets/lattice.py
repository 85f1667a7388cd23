"""Data of a lattice: wadm's replies and bucket, events and heartbeats of hosts, manifests, addresses, subjects."""

from __future__ import annotations

import base64
import copy
import ipaddress
import json
import random
from datetime import datetime
from typing import Any

from fuzz.target import Target, jsonable, tried
from support.lattices.lattice_recordings import everything, replies
from support.suite.mutations import dumped, mutated_often, spoilt_text, text
from trellis.lattice.domain import subjects
from trellis.lattice.domain.addresses import AddressError, Family, read_address
from trellis.lattice.domain.bucket_entries import BucketEntries, Entry
from trellis.lattice.domain.hosts import LABELS_KEPT, TEXT_KEPT, UNITS_KEPT, read_host
from trellis.lattice.domain.manifests import SETTINGS, Protocol, read_application
from trellis.lattice.domain.models import read_manifest, read_models, read_statuses
from trellis.lattice.domain.oam import ManifestError
from trellis.lattice.domain.projection import project
from trellis.lattice.domain.reading import LatticeDataError, event_time, host_data, read_event
from trellis.lattice.domain.replies import (
    MESSAGE_KEPT,
    VERSIONS_KEPT,
    WHOLE_MESSAGE_KEPT,
    Put,
    Status,
    WadmRefusedError,
    read_delete,
    read_deploy,
    read_get,
    read_published_status,
    read_put,
    read_status,
    read_versions,
)
from trellis.lattice.domain.store import AbsenceReason
from trellis.lattice.domain.subjects import SubjectError
from trellis.lattice.follow.forwarder import event_in
from trellis.lattice.wadm.configurations import read_configuration, read_host_configuration

_OPERATIONS = {
    "put": read_put, "deploy.shop": read_deploy, "undeploy.shop": read_deploy, "del.shop": read_delete,
    "get.shop": read_get, "versions.shop": read_versions, "status.shop": read_status, "said": read_published_status,
    "list": read_models, "statuses": read_statuses, "manifest": read_manifest,
}  # fmt: skip
_RECORDED: dict[str, list[Any]] = {
    name: replies(f"wadm.api.default.model.{name}") for name in _OPERATIONS if "." in name or name in ("put", "list")
}
_RECORDED["said"] = [item["status"] for item in _RECORDED["status.shop"]]
_RECORDED["statuses"] = _RECORDED["list"]
_RECORDED["manifest"] = _RECORDED["get.shop"]
_RESULTS = ("created", "newversion", "acknowledged", "deleted", "noop", "success", "ok", "notfound", "error")


def _reply(rng: random.Random) -> tuple[str, bytes]:
    name = rng.choice(sorted(_OPERATIONS))
    good = rng.choice(_RECORDED[name])
    if isinstance(good, dict) and "result" in good and rng.random() < 0.2:
        good = good | {"result": rng.choice(_RESULTS), "message": text(rng, ["Internal storage error", "no"])}
    return name, dumped(rng, mutated_often(rng, good))


def _judge_reply(case: tuple[str, bytes]) -> str:
    name, payload = case
    outcome, found = tried(lambda: _OPERATIONS[name](payload), LatticeDataError, WadmRefusedError)
    parsed = jsonable(payload)
    if outcome == "WadmRefusedError":
        assert isinstance(parsed, dict)
        assert parsed["result"] == "error" or parsed["message"].startswith("Internal storage error")
        assert 0 < len(str(found)) <= MESSAGE_KEPT
    if outcome != "accepted":
        return f"{outcome} of {name}"
    result = parsed.get("result") if isinstance(parsed, dict) else None
    assert result != "error"
    _check_reply(name, found, parsed)
    return "accepted"


def _check_reply(name: str, found: Any, parsed: Any) -> None:  # noqa: C901 (a row for each answer)
    result = parsed.get("result") if isinstance(parsed, dict) else None
    match found:
        case _ if name == "manifest":
            assert found == parsed["manifest"]
        case Put():
            assert (found.version, result) == (parsed["current_version"], "created" if found.created else "newversion")
            assert type(found.versions) is int
            assert found.versions >= 0
        case Status():
            _check_status(found)
        case bool():
            assert found is (result == "deleted")
        case str():
            assert (result, parsed.get("version") or "") == ("acknowledged", found)
        case None:
            assert result == "notfound"
        case tuple() if name == "versions.shop":
            assert len(found) <= VERSIONS_KEPT
            assert [item.version for item in found] == [version["version"] for version in parsed.get("versions") or ()]
        case tuple():
            assert [item.name for item in found] == sorted(item.name for item in found)
            assert all(0 < len(item.name) <= TEXT_KEPT for item in found)
        case dict() if name == "statuses":
            for item in found.values():
                _check_status(item)


def _check_status(found: Status) -> None:
    assert found.status
    assert len(found.message) <= WHOLE_MESSAGE_KEPT
    assert all(len(scaler.message) <= MESSAGE_KEPT and scaler.status for scaler in found.scalers)


REPLY = Target(
    "wadm-replies",
    "responses of wadm to put, get, list, deploy, undeploy, del, versions, status, and its published statuses",
    "the values of a plain reading of the JSON, bounded; else one of two errors; an error never counts as success",
    _reply,
    _judge_reply,
    share=20,
)


_LISTS = ("default", "default-b", "other", "default-b-c")
_NAMES = ("b", "c", "b-c", "shop")


def _entry(rng: random.Random, sequence: int) -> Entry:
    key = rng.choice([*_LISTS, *(f"{lattice}-{name}" for lattice in _LISTS for name in _NAMES)])
    if rng.random() < 0.2:
        return Entry(key, sequence, None)
    if rng.random() < 0.3:
        return Entry(key, sequence, dumped(rng, mutated_often(rng, rng.sample(_NAMES, rng.randrange(4)))))
    names = [key.removeprefix(f"{lattice}-") for lattice in _LISTS if key.startswith(f"{lattice}-")]
    manifest = {"metadata": {"name": rng.choice([*names, "shop"]), "annotations": {}}, "spec": {"components": []}}
    value = {"manifests": {"v1": manifest, "v2": manifest}, "deployed_version": rng.choice(["v1", None, "v9"])}
    return Entry(key, sequence, dumped(rng, mutated_often(rng, value) if rng.random() < 0.4 else value))


def _entries(rng: random.Random) -> list[Entry]:
    return [_entry(rng, sequence) for sequence in range(1, rng.randrange(2, 12))]


def _judge_entries(entries: list[Entry]) -> str:
    """Fed in order, as a plain reading of the last readable entry of each key has it."""
    stored = BucketEntries("default")
    stored.begin("b1")
    last: dict[str, tuple[bool, Any]] = {}
    outcome = "accepted"
    for entry in entries:
        ours = entry.key == "default" or entry.key.startswith("default-")
        how, _ = tried(lambda entry=entry: stored.take(entry), LatticeDataError)
        outcome = how if how != "accepted" else outcome
        assert ours or how == "accepted"
        if ours and how == "accepted":
            last[entry.key] = (entry.value is None, None if entry.value is None else jsonable(entry.value))
    listed = last.get("default", (True, None))[1]
    there = set()
    for key, (deleted, value) in last.items():
        name = key.removeprefix("default-")
        if key == "default" or not isinstance(value, dict):
            if key != "default" and deleted and isinstance(listed, list) and name not in listed:
                assert stored.absence(name) is AbsenceReason.DELETED
            elif key != "default":
                assert stored.absence(name) is not AbsenceReason.DELETED
            continue
        parsed = list(value["manifests"].values())[-1]["metadata"]["name"]
        if parsed == name:
            there.add(name)
            model = stored.find(name)
            assert model is not None
            assert model.deployed == (value.get("deployed_version") or "")
            assert {version: manifest.read() for version, manifest in model.versions} == value["manifests"]
        assert stored.absence(name) is not AbsenceReason.DELETED
    assert set(stored.names()) == there
    return outcome


BUCKET = Target(
    "wadm-bucket",
    "entries of wadm's bucket of manifests",
    "the last entry of each key; an invalid entry changes nothing; only a purge proves a deletion",
    _entries,
    _judge_entries,
    frozenset({"accepted", "LatticeDataError"}),
    share=6,
)

_EVENTS = [json.loads(json.dumps(item)) for item in everything() if item["subject"].count(".") == 3]
_HEARTBEATS = [event for event in _EVENTS if event["subject"].endswith("host_heartbeat")]


def _event(rng: random.Random) -> tuple[str, bytes, dict[str, str]]:
    item = rng.choice(_HEARTBEATS if rng.random() < 0.6 else _EVENTS)
    event = copy.deepcopy(item["data"])
    if rng.random() < 0.2 and "data" in event:
        event["data_base64"] = base64.b64encode(dumped(rng, event.pop("data"))).decode()
    if rng.random() < 0.3 and isinstance(event.get("data"), dict):
        event["data"] = mutated_often(rng, event["data"])
    subject = item["subject"] if rng.random() < 0.7 else spoilt_text(rng, item["subject"])
    return subject, dumped(rng, mutated_often(rng, event)), {"traceparent": text(rng)} if rng.random() < 0.2 else {}


def _judge_event(case: tuple[str, bytes, dict[str, str]]) -> str:
    subject, payload, headers = case
    copied = event_in(subject, payload, headers)
    if copied is not None:
        assert copied.body == payload
        assert subject.split(".")[-2:] == [copied.lattice, copied.event]
        assert jsonable(payload)["id"] == copied.id
        assert not copied.event.startswith(("config_", "host_heartbeat"))
    outcome, event = tried(lambda: read_event(payload), LatticeDataError)
    if outcome != "accepted":
        return "no event"
    _check_time(event)
    outcome, host = tried(lambda: read_host(host_data(event)), LatticeDataError)
    if outcome != "accepted":
        return "an event of no host"
    assert host.id == (event["data"]["host_id"] if "host_id" in event["data"] else event["source"])
    for value in (host.name, host.version, *host.labels, *host.labels.values()):
        assert len(value) <= TEXT_KEPT
    assert len(host.labels) <= LABELS_KEPT
    for units in (host.components, host.providers):
        assert len(units) <= UNITS_KEPT
        assert all(unit.instances is None or unit.instances >= 0 for unit in units)
    assert host.uptime_seconds >= 0
    assert hash(host.applications) == hash(tuple(sorted(host.applications)))
    assert read_host(json.loads(json.dumps(event["data"] | {"host_id": host.id}))) == host
    return "a host"


def _check_time(event: dict[str, Any]) -> None:
    parsed = event_time(event)
    if not parsed:
        return
    assert datetime.fromisoformat(parsed).timestamp() == _by_second_reading(event["time"])


def _by_second_reading(time: str) -> float:
    return datetime.fromisoformat(time.upper()).timestamp()


EVENT = Target(
    "lattice-events",
    "events of wadm and of hosts, heartbeats, and their copies on the bus",
    "ids, times and hosts equal to a second reading, bounded; no configuration is copied; else one error",
    _event,
    _judge_event,
    frozenset({"no event", "an event of no host", "a host"}),
    share=20,
)

_CONFIG = {"name": "addr", "properties": {"address": "0.0.0.0:8080", "secret": "x"}}
_LINK = {"namespace": "wasi", "package": "http", "interfaces": ["incoming-handler"], "target": "ui"}


def manifest(rng: random.Random) -> dict[str, Any]:
    """An application as people write them: old and new forms, several capabilities, scalers, annotations."""
    configs = [rng.choice([_CONFIG, {"name": "addr"}, {"name": "p", "properties": {"port": 8081}}])]
    links = [
        {**_LINK, "source_config": configs},
        {**_LINK, "source": {"config": configs}, "target": {"name": "ui", "config": [{"name": "x"}]}},
        {**_LINK, "interfaces": ["outgoing-handler"]},
        {**_LINK, "package": "http@0.2.0", "source": {"config": [*configs, _CONFIG]}},
    ]
    scalers = [
        {"type": rng.choice(["spreadscaler", "daemonscaler"]), "properties": {rng.choice(["instances", "replicas"]): 1,
         "spread": [{"name": "a", "requirements": {"zone": "a"}, "weight": 1}]}},
        {"type": "daemonscaler", "properties": {"instances": 1}},
    ]  # fmt: skip
    traits = [{"type": "link", "properties": rng.choice(links)} for _ in range(rng.randrange(3))]
    server = {
        "name": "httpserver", "type": "capability",
        "properties": {"image": "ghcr.io/wasmcloud/http-server:0.23", "config": configs if rng.random() < 0.3 else []},
        "traits": [*traits, *rng.sample(scalers, rng.randrange(3))],
    }  # fmt: skip
    secret = {"name": "s", "properties": {"policy": "p", "key": "k", "field": None}}
    ui = {
        "name": "ui", "type": rng.choice(["component", "actor"]),
        "properties": {"image": "x/y:1", "secrets": [secret]}, "traits": [rng.choice(scalers)],
    }  # fmt: skip
    annotations = {
        "version": rng.choice(["v1", "1.0.0"]), "trellis.dev/service-ports": rng.choice(["httpserver=5432", "x=y"]),
        "kubectl.kubernetes.io/last": "x",
    }  # fmt: skip
    return {
        "apiVersion": "core.oam.dev/v1beta1",
        "kind": "Application",
        "metadata": {"name": "shop", "annotations": dict(rng.sample(sorted(annotations.items()), rng.randrange(4)))},
        "spec": {"components": [server, ui][: rng.randrange(1, 3)], "policies": [{"name": "p", "type": "t"}]},
    }


def _manifest(rng: random.Random) -> Any:
    return jsonable(dumped(rng, mutated_often(rng, manifest(rng))))


def _judge_manifest(found: Any) -> str:
    read, application = tried(lambda: read_application(found, {"addr": {"port": "9000"}}), ManifestError)
    kept, projection = tried(lambda: project(found), ManifestError)
    if read == "accepted":
        ports = [listener.port for listener in application.listeners]
        assert len(set(ports)) == len(ports)
        assert all(1 <= port <= 65535 for port in ports)
        assert all(
            isinstance(listener.protocol, Protocol) and listener.requirements for listener in application.listeners
        )
        assert list(application.configurations) == sorted(application.configurations)
    if kept == "accepted":
        _check_projection(projection)
    if read == kept == "accepted":
        again = read_application(projection.under("v1"), {"addr": {"port": "9000"}})
        assert again.listeners == application.listeners, (again.listeners, application.listeners)
    return f"{read}, {kept}"


def _check_projection(projection: Any) -> None:
    again = project(json.loads(json.dumps(projection.manifest)))
    assert again.manifest == projection.manifest
    assert again.digest == projection.digest
    assert again.ignored == ()
    assert projection.version == "" or project(projection.under("v7")).version == "v7"


MANIFEST = Target(
    "manifests",
    "OAM manifests of applications: their listeners, and their projection for wadm",
    "a projection is its own projection, with the same digest; its listeners are those of the original",
    _manifest,
    _judge_manifest,
    frozenset({"accepted, accepted", "ManifestError, ManifestError"}),
    share=20,
)


def _configuration(rng: random.Random) -> tuple[bool, bytes]:
    held = {"address": "0.0.0.0:8080", "PORT": "80", "password": "hunter2"}
    if rng.random() < 0.5:
        answer: Any = {"success": True, "message": "", "response": held}
        return True, dumped(rng, mutated_often(rng, answer))
    data = base64.b64encode(dumped(rng, mutated_often(rng, held))).decode()
    headers = base64.b64encode(rng.choice([b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n", b"NATS/1.0\r\n\r\n"])).decode()
    answer = {"message": {"subject": "$KV.x", "seq": 1, "data": data}} | rng.choice(
        [{}, {"error": {"code": 404, "description": "no"}}]
    )
    answer["message"] |= rng.choice([{}, {"hdrs": headers}])
    return False, dumped(rng, mutated_often(rng, answer))


def _judge_configuration(case: tuple[bool, bytes]) -> str:
    by_host, payload = case
    read = read_host_configuration if by_host else read_configuration
    outcome, found = tried(lambda: read(payload), LatticeDataError)
    if outcome == "accepted":
        assert set(found) <= set(SETTINGS)
        assert all(isinstance(item, str) for item in found.values())
        return "an address" if found else "nothing"
    assert "hunter2" not in str(found)
    return outcome


CONFIGURATION = Target(
    "named-configurations",
    "named configurations of a lattice, from its bucket or from a host",
    "only addresses and ports are read, and no other value appears in an error",
    _configuration,
    _judge_configuration,
    frozenset({"an address", "nothing", "LatticeDataError"}),
    share=6,
)

_HOSTS = ("0.0.0.0", "127.0.0.1", "::", "::1", "10.0.0.1", "fd00::1", "::ffff:127.0.0.1", "localhost", "")


def _address(rng: random.Random) -> tuple[str, str, tuple[str, int] | None]:
    host, port = rng.choice(_HOSTS), rng.choice([1, 80, 8080, 65535])
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if rng.random() < 0.3:
        return address, "", (host, port)
    return spoilt_text(rng, address), text(rng, ["80", "0", "65536"]), None


def _judge_address(case: tuple[str, str, tuple[str, int] | None]) -> str:
    address, port, meant = case
    outcome, found = tried(lambda: read_address(address, port), AddressError)
    if meant is not None:
        host, number = meant
        assert found.port == number
        ip = None if host in ("", "localhost") else ipaddress.ip_address(host)
        mapped = getattr(ip, "ipv4_mapped", None)
        assert found.loopback == (host == "localhost" or bool(ip and (mapped or ip).is_loopback))
        version = 4 if mapped else ip.version if ip else 0
        assert (found.family is Family.IPV4) == (version == 4)
        assert (found.family is Family.IPV6) == (version == 6 and not ip.is_unspecified)
    elif outcome == "accepted":
        assert 1 <= found.port <= 65535
    return outcome


ADDRESS = Target(
    "listen-addresses",
    "listen addresses of providers",
    "port, family and whether only the host can connect, equal to Python's `ipaddress`",
    _address,
    _judge_address,
    frozenset({"accepted", "AddressError"}),
    share=6,
)

_BUILDERS = (
    (lambda a, _b, acc: subjects.event_subject(a, "host_heartbeat", acc), 4),
    (lambda a, _b, _acc: subjects.wadm_events_subject(a), 4),
    (lambda a, _b, acc: subjects.model_list_subject(a, acc), 5),
    (lambda a, _b, acc: subjects.model_put_subject(a, acc), 5),
    (lambda a, b, acc: subjects.model_subject(a, "deploy", b, acc), 6),
    (lambda a, _b, _acc: subjects.status_subject(a), 4),
    (lambda a, b, _acc: subjects.host_get_subject(a, b), 7),
    (lambda a, _b, _acc: subjects.host_ping_subject(a), 6),
    (lambda a, b, _acc: subjects.configuration_ask_subject(a, b, "wasmbus.ctl"), 7),
    (lambda a, _b, _acc: subjects.secrets_subject(a, "get"), 5),
)


def _parts(rng: random.Random) -> tuple[int, str, str, str]:
    good = ["default", "shop", "NABC", "my_lattice", "é"]
    account = rng.choice(["", "", "ABC", text(rng)])
    return rng.randrange(len(_BUILDERS)), text(rng, good), text(rng, good), account


def _judge_parts(case: tuple[int, str, str, str]) -> str:
    number, first, second, account = case
    build, count = _BUILDERS[number]
    outcome, subject = tried(lambda: build(first, second, account), SubjectError)
    if outcome != "accepted":
        return outcome
    with_account = account != "" and build.__code__.co_varnames[2] == "acc"
    tokens = subject.split(".")
    assert len(tokens) == count + with_account, subject
    assert all(tokens)
    assert not any(char.isspace() or not char >= " " or char == "\x7f" for char in subject)
    assert not any(wild in token for token in tokens[:-1] for wild in "*>")
    assert tokens[-1] in ("*", ">") or not {"*", ">"} & set(tokens[-1])
    assert first in tokens
    if number == 0:
        assert subjects.event_of(subject) == "host_heartbeat"
    return outcome


PARTS = Target(
    "lattice-subjects",
    "names of lattices, applications, hosts and accounts in subjects",
    "a subject has the tokens of its form, none empty, and no other wildcards; else one error",
    _parts,
    _judge_parts,
    frozenset({"accepted", "SubjectError"}),
    share=6,
)

TARGETS = (REPLY, BUCKET, EVENT, MANIFEST, CONFIGURATION, ADDRESS, PARTS)
