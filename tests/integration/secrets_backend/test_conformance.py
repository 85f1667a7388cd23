"""secrets_backend answers every case as the protocol has it: `trellis run`, a real nats-server, a real API server.

It is asked by the crates that a wasmCloud host is made of. The same table is what its peer is measured by
(``bench/secret_requests.py``).
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterator

import pytest

from support.secrets import secrets_client
from support.secrets.secrets_conformance.cases import Case, Outcome, granted, read
from support.secrets.secrets_conformance.judging import judge
from support.secrets.secrets_conformance.table import CASES
from support.secrets.secrets_conformance.world import NOT_TEXT, PREFIX, TEXT, VALUES, Ask, World, policy_of
from support.secrets.secrets_server import Place, ServedBackend, running_backend
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def backend(cluster: ClusterInfo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBackend]:
    if (reason := secrets_client.missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")
    directory, name = tmp_path_factory.mktemp("secrets"), f"secrets-{secrets.token_hex(4)}"
    with NatsServer(directory / "lattice") as lattice, NatsServer(directory / "bus") as bus:
        place = Place(cluster, bus, f"{name}-home", directory)
        with running_backend(place, lattice, lattice_name=name, own=(f"{name}-own", "default")) as found:
            yield found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_requests_are_answered_as_the_protocol_requires(backend: ServedBackend, case: Case) -> None:
    verdict = judge(backend.world, case)
    assert verdict.good, str(verdict)


def test_a_hosts_own_client_reads_text_bytes_and_what_is_empty(backend: ServedBackend) -> None:
    world = backend.world
    for field, text, binary in (
        ("text", TEXT, None),
        ("empty", "", None),
        ("every-byte", None, list(NOT_TEXT["every-byte"])),
    ):
        answer = world.client.ask_as_host(PREFIX, world.backend, Ask(field=field).request(world))
        assert (answer["string_secret"], answer["binary_secret"]) == (text, binary), field
        assert answer["version"] == _version(world)


def test_a_hosts_own_client_reads_why_it_is_refused(backend: ServedBackend) -> None:
    world = backend.world
    for ask, expected_text in (
        (Ask(field="none"), "Secret not found"),
        (Ask(policy=lambda _: ""), "Error processing policies"),
        (Ask(name=lambda _: "none"), "Error fetching secret"),
        (Ask(entity=lambda _: ""), "Invalid Entity JWT"),
    ):
        with pytest.raises(secrets_client.ClientError, match=expected_text):
            world.client.ask_as_host(PREFIX, world.backend, ask.request(world))


def test_the_newest_value_comes_at_once(backend: ServedBackend) -> None:
    world, path = backend.world, f"/api/v1/namespaces/{backend.world.namespace}/secrets/changing"
    body = {"metadata": {"name": "changing"}, "stringData": {"text": "0"}}
    world.api.call("POST", path.rpartition("/")[0], body)
    ask, before = Ask(name=lambda _: "changing"), ""
    for number in range(10):
        world.api.call("PATCH", path, {"stringData": {"text": str(number)}})
        answer = world.client.ask_as_host(PREFIX, world.backend, ask.request(world))
        assert answer["string_secret"] == str(number)
        assert answer["version"] != before
        before = answer["version"]


def test_a_missing_secret_and_a_forbidden_one_look_alike_without_read_permission(backend: ServedBackend) -> None:
    world = backend.world
    there, missing = (
        _outcome(world, Ask(policy=lambda it: policy_of(it.namespace, "mute"), name=lambda _, name=name: name))
        for name in (world.name, "z" * len(world.name))
    )
    assert str(there).replace(f'"{world.name}"', "") == str(missing).replace(f'"{"z" * len(world.name)}"', "")
    outside = [
        _outcome(world, Ask(policy=lambda it: policy_of(it.outside, "reader"), name=lambda _, name=name: name))
        for name in (world.name, "none")
    ]
    assert outside[0] == outside[1]


def test_every_answer_is_sealed_with_a_key_of_its_own(backend: ServedBackend) -> None:
    keys = {_sealing_key(backend.world) for _ in range(20)}
    assert len(keys) == 20


def test_nothing_that_was_planted_is_in_its_log_its_metrics_or_its_events(backend: ServedBackend) -> None:
    for field in ("text", "letters", "every-byte", "json", "long"):
        judge(backend.world, Case("read it", Ask(field=field), granted()))
    output = _events(backend) + (backend.log + backend.servers[0].metrics()).encode()
    assert backend.world.name.encode() in output, "what is said is not to be searched: it is compressed, or not there"
    planted = [VALUES[name].encode() for name in ("text", "other", "letters", "json", "long")]
    planted += [value for value in NOT_TEXT.values() if len(value) > 20]
    planted += [base64.b64encode(value) for value in planted]
    planted += [value.decode("utf-8", "replace").encode("unicode_escape") for value in planted]
    planted += [backend.world.account.seed.encode(), _seed(backend)]
    assert not [value[:20] for value in planted if value in output]


def _events(backend: ServedBackend) -> bytes:
    """Return the content of the bus, from the files of NATS, once the grants are published there."""
    deadline = time.monotonic() + 60
    while True:
        found = b"".join(path.read_bytes() for path in (backend.place.directory / "bus").rglob("*.blk"))
        if b"secret.granted" in found:
            return found
        assert time.monotonic() < deadline, "no fact of a secret that was granted"
        time.sleep(0.1)


def _outcome(world: World, ask: Ask) -> Outcome:
    reply, host = ask.send(world)
    assert reply is not None
    return read(world, reply, host)


def _sealing_key(world: World) -> str:
    reply, _ = Ask().send(world)
    assert reply is not None
    return dict(reply.headers)["Server-Response-Xkey"]


def _version(world: World) -> str:
    answer = world.api.call("GET", f"/api/v1/namespaces/{world.namespace}/secrets/{world.name}")[1]
    return str(answer["metadata"]["resourceVersion"])


def _seed(backend: ServedBackend) -> bytes:
    """Return the seed of the backend's key."""
    answer = backend.world.api.call("GET", f"/api/v1/namespaces/{backend.place.home}/secrets/trellis-secrets-xkey")[1]
    return base64.b64decode(answer["data"]["seed"])
