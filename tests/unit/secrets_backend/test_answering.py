"""An internal error costs its own answer, and shows nothing of a secret."""

from __future__ import annotations

import base64
import copy
import gc
import json
import time
import weakref
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from secrets_backend import answering as module
from secrets_backend.answering import Answering, Parts
from secrets_backend.audit import Audit
from secrets_backend.changes import Changes
from secrets_backend.domain.decide import ConnectionGrant, Identity
from secrets_backend.domain.keys import CurveKey, KeyRing
from secrets_backend.domain.limits import Limits
from secrets_backend.domain.refusals import Refusal
from secrets_backend.key import Key
from secrets_backend.lookup import LARGEST_KEPT, MOST_KEPT, Lookup, describe_error
from secrets_backend.metrics import SecretMetrics
from secrets_backend.timings import Timings
from support.secrets.secret_requests import changed, policy
from support.secrets.secrets_host import MODULE, Host, Signer, value
from trellis.bus.bus import Bus
from trellis.events.secrets import SecretDenied
from trellis.kube.client import Kube
from trellis.kube.errors import Call, Forbidden, NotFound, TooManyRequests, Unauthorized, Unavailable
from trellis.lattice.connection.requests import AnswerLost, IncomingRequest
from trellis.telemetry import Metrics, setup

PLANTED = "planted-value"
CALL = Call("GET", "Secret", "secrets", "shop", "db")
SECRET = {
    "metadata": {"name": "db", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
    "data": {"password": base64.b64encode(PLANTED.encode()).decode()},
}
GRANT = ConnectionGrant(frozenset({"shop"}), frozenset({("shop", "default")}))
IDENTITY = Identity("system:serviceaccount:shop:reader", "shop", "rule")


class Server:
    """A client that gives one Secret, or fails."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self.trouble = trouble
        self.requested: list[tuple[str, tuple[str, str]]] = []

        self.user = ""

    def acting_as(self, user: str) -> Server:
        view = copy.copy(self)
        view.user = user
        return view

    async def get(self, _: object, name: str, namespace: str, **__: object) -> Any:
        self.requested.append((self.user, (namespace, name)))
        if self.trouble is not None:
            raise self.trouble
        return SECRET


class FixedKey:
    """A key that does not change."""

    def __init__(self) -> None:
        self.ring = KeyRing(CurveKey.make(), ())

    async def invalidate(self) -> bool:
        return False


class Bench:
    """Answering with a client of the test's, asked as a host asks."""

    def __init__(self, server: Server, rate: float = 0) -> None:
        self.metrics = Metrics()
        self.spans = InMemorySpanExporter()
        self.grant = GRANT
        self.now = time.time()
        self.entity = Signer(MODULE)
        self.key = FixedKey()
        telemetry = setup("secrets_backend", metrics=self.metrics, span_exporters=[self.spans])
        self.audit = Audit(cast("Bus", None), telemetry)
        kube = cast("Kube", server)
        self.answering = Answering(
            Parts(
                tracer=telemetry.tracer,
                key=cast("Key", self.key),
                lookup=Lookup(kube),
                limits=Limits(rate),
                audit=self.audit,
                changes=Changes(kube, cast("Bus", None), telemetry, Timings()),
                metrics=SecretMetrics(self.metrics, "secrets_backend"),
                backend="kube",
                users=frozenset(),
                timings=Timings(),
                now=lambda: self.now,
            )
        )

    async def request(self, *, age: float = 0.0, lost: bool = False, **changes: Any) -> dict[str, Any]:
        """Return what a host reads in the answer, {} if there is none; ``changes`` of the request, by their paths."""
        host = Host("", server=self.key.ring.current.public, entity=self.entity)
        host.tokens = (host.issuer.token(host.entity.public), host.issuer.token(host.host.public))
        found: dict[str, Any] = {}
        answering, grant = self.answering, self.grant

        class Message:
            data = b""
            headers: dict[str, str] | None = None

        class Client:
            max_payload = 2**20

            async def request(self, _: str, body: bytes, *, headers: dict[str, str], **__: object) -> Message:
                incoming = IncomingRequest("s", body, headers, time.monotonic() - age, "r", self)  # type: ignore[arg-type]
                await answering.answer(incoming, lambda: grant)
                return answered

            async def publish(self, _: str, body: bytes, headers: dict[str, str] | None) -> None:
                if lost:
                    raise ValueError("no subject")
                answered.data, answered.headers = body, headers

        answered = Message()
        host.client = cast("Any", Client())
        requested = host.request("db", "password", namespace="shop", impersonate="reader")
        text = json.dumps(changed(requested, {path.replace("__", "."): value for path, value in changes.items()}))
        try:
            found = await host.send(text.encode())
        except json.JSONDecodeError:
            assert answered.data == b""
        return found

    @property
    def denied(self) -> list[SecretDenied]:
        """The events of refusals that wait."""
        return [event for events in self.audit._waiting.values() for event in events if isinstance(event, SecretDenied)]

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the one span there is."""
        (span,) = self.spans.get_finished_spans()
        return dict(span.attributes or {})

    def dropped(self, reason: str) -> float:
        labels = {"service": "secrets_backend", "reason": reason}
        return self.metrics.registry.get_sample_value("trellis_secrets_dropped_total", labels) or 0.0


async def test_a_secret_is_read_as_the_account_of_the_policy() -> None:
    server = Server()
    assert value(await Bench(server).request()) == PLANTED
    assert server.requested == [("system:serviceaccount:shop:reader", ("shop", "db"))]


async def test_a_fault_inside_is_an_answer_that_holds_nothing_of_the_secret(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(secret: Any, _: str) -> bytes:
        raise RuntimeError(f"cannot use {base64.b64decode(secret['data']['password']).decode()}")

    monkeypatch.setattr(module, "success", broken)
    bench = Bench(Server())
    answer = await bench.request()
    assert list(answer["error"]) == ["Other"]
    shown = capsys.readouterr()
    spans = [span.to_json() for span in bench.spans.get_finished_spans()]
    text = f"{answer}{caplog.text}{shown.out}{shown.err}{bench.audit._waiting}{spans}"
    assert "RuntimeError" in text
    assert "_give" in text  # where it failed is told
    assert PLANTED not in text


class Held(dict[str, Any]):
    """A Secret that reports when it is not referenced any more."""


@pytest.mark.parametrize(
    ("requested", "outcome"),
    [({}, "secret"), ({"field": "none"}, "error"), ({"lost": True}, "")],
    ids=["given", "refused", "lost"],
)
async def test_no_secret_is_retained_after_the_answer(requested: dict[str, Any], outcome: str) -> None:
    held: list[weakref.ref[Held]] = []

    class Giving(Server):
        async def get(self, *_: object, **__: object) -> Any:
            held.append(weakref.ref(secret := Held(SECRET)))
            return secret

    bench = Bench(Giving())
    gc.collect()
    gc.disable()  # what only the collector finds is there for as long as it pleases
    try:
        assert outcome in (await bench.request(**requested) or {"": None})
        assert [item() for item in held] == [None]
    finally:
        gc.enable()


async def test_a_claim_of_another_tenants_entity_uses_none_of_its_rate() -> None:
    bench = Bench(Server(), rate=1e-9)
    bench.grant = ConnectionGrant(frozenset({"evil"}), frozenset({("evil", "default")}))
    assert "PolicyError" in (await bench.request())["error"]
    assert "TRELLIS_SECRETS_ENTITY_RATE" in (await bench.request())["error"]["Other"]
    bench.grant = GRANT
    assert value(await bench.request()) == PLANTED


POLICY = "context__application__policy"
LONG = "x" * 100_000
AMISS: dict[str, tuple[dict[str, Any], str, tuple[str, str, str]]] = {
    "no policy": ({POLICY: ""}, "PolicyError", ("", "db", "password")),
    "a policy that is no JSON": ({POLICY: f"no policy {LONG}"}, "PolicyError", ("", "db", "password")),
    "a flat policy": ({POLICY: '{"namespace": "shop"}'}, "PolicyError", ("", "db", "password")),
    "a policy of another type": ({POLICY: policy(namespace=5)}, "PolicyError", ("", "db", "password")),
    "no namespace's name": ({POLICY: policy(namespace="../x\r\n" + LONG)}, "PolicyError", ("", "db", "password")),
    "no account's name": ({POLICY: policy(impersonate="a\r\nb: c" + LONG)}, "PolicyError", ("", "db", "password")),
    "no Secret's name": ({"key": "../nodes\x1b[2J" + LONG}, "UpstreamError", ("shop", "", "password")),
    "no name": ({"key": ""}, "Other", ("shop", "", "password")),
    "no entry's name": ({"field": "a/b\n" + LONG}, "SecretNotFound", ("shop", "db", "")),
    "no entry": ({"field": None}, "Other", ("shop", "db", "")),
    "nothing that can be": (
        {POLICY: "", "key": "?", "field": "?", "context__application__name": None},
        "PolicyError",
        ("", "", ""),
    ),
}


@pytest.mark.parametrize("case", AMISS)
async def test_an_invalid_request_of_a_known_client_is_an_event_with_its_requester(case: str) -> None:
    changes, error, (namespace, name, entry) = AMISS[case]
    bench = Bench(server := Server())
    answer = await bench.request(**changes)
    assert error in answer["error"]
    assert not server.requested
    (event,) = bench.denied
    assert (event.error, event.namespace, event.name, event.field) == (error, namespace, name, entry)
    assert (event.entity, event.user, event.backend) == (bench.entity.public, "", "kube")
    assert (event.issuer[0], event.host[0]) == ("A", "N")
    assert event.application == (None if case == "nothing that can be" else "app")
    if not isinstance(answer["error"], str):
        assert answer["error"] == {error: event.message}
    fields = event.model_dump()
    assert all(len(text) < 500 and text.isprintable() for text in fields.values() if isinstance(text, str)), fields


@pytest.mark.parametrize(
    "changes",
    [{"context__entity_jwt": "no token"}, {"context__host_jwt": "no token"}, {"key": 5}, {POLICY: {}}],
    ids=["the entity's token", "the host's token", "a name that is no text", "a policy that is no text"],
)
async def test_an_unknown_client_causes_no_event(changes: dict[str, Any]) -> None:
    bench = Bench(Server())
    assert "error" in await bench.request(**changes)
    assert len(bench.audit) == 0


async def test_a_client_with_too_many_invalid_requests_is_informed_and_gets_no_details() -> None:
    bench = Bench(Server(), rate=1e-9)
    assert "PolicyError" in (await bench.request(**{POLICY: ""}))["error"]
    assert "TRELLIS_SECRETS_ENTITY_RATE" in (await bench.request(**{POLICY: ""}))["error"]["Other"]
    assert [event.error for event in bench.denied] == ["PolicyError", "Other"]


async def test_a_long_message_is_truncated_to_the_limit_of_an_event() -> None:
    trouble = NotFound(CALL, status=404, reason="NotFound", message="x" * 5000)
    bench = Bench(Server(trouble))
    await bench.request()
    assert [event.message for event in bench.denied] == ["x" * 1024]


async def test_a_span_has_the_requester_the_lattices_and_the_result() -> None:
    bench = Bench(Server())
    await bench.request()
    about = {"trellis.application": "app", "trellis.entity": bench.entity.public, "trellis.lattices": ("shop/default",)}
    assert bench.attributes == about | {"trellis.outcome": "granted"}


@pytest.mark.parametrize(
    ("server", "requested", "outcome"),
    [
        (Server(), {"field": "none"}, "SecretNotFound"),
        (Server(), {POLICY: ""}, "PolicyError"),
        (Server(), {"context__entity_jwt": "x"}, "InvalidEntityJWT"),
        (Server(), {"lost": True}, "lost"),
        (Server(), {"age": 100.0}, "late"),
        (Server(), {"age": 100.0, "lost": True}, "expired"),
        (Server(RuntimeError(PLANTED)), {}, "Other"),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
async def test_a_span_has_the_result_and_nothing_of_an_exception(
    server: Server, requested: dict[str, Any], outcome: str
) -> None:
    bench = Bench(server)
    await bench.request(**requested)
    assert bench.attributes["trellis.outcome"] == outcome
    (span,) = bench.spans.get_finished_spans()
    assert not span.events
    assert PLANTED not in span.to_json()


async def test_an_expired_request_is_answered_without_a_read() -> None:
    server = Server()
    bench = Bench(server)
    assert list((await bench.request(age=Timings().answer + 1))["error"]) == ["Other"]
    assert not server.requested


async def test_an_unsendable_answer_is_counted_and_not_published_as_granted() -> None:
    bench = Bench(Server())
    assert await bench.request(lost=True) == {}
    assert bench.dropped("lost") == 1
    assert len(bench.audit) == 0


FORBIDDEN = 'secrets "db" is forbidden: User "system:serviceaccount:shop:reader" cannot get resource "secrets" in API '
FORBIDDEN += 'group "" in the namespace "shop"'
NOT_OURS = 'users "alice" is forbidden: User "system:serviceaccount:trellis-system:trellis-secrets-backend" cannot '
NOT_OURS += 'impersonate resource "users" in API group "" at the cluster scope'


ROLES = "`trellis secrets roles -n shop --user alice | kubectl apply -f -`"
ADDRESS = "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    ("error", "user", "shown", "hidden"),
    [
        (Forbidden(CALL, status=403, reason="Forbidden", message=FORBIDDEN), IDENTITY.user, FORBIDDEN, ROLES),
        (NotFound(CALL, status=404, reason="NotFound", message="not found"), IDENTITY.user, "not found", ROLES),
        (Forbidden(CALL, status=403, reason="Forbidden", message=NOT_OURS), "alice", ROLES, NOT_OURS),
        (
            Unavailable(CALL, status=0, reason="Unavailable", message=f"{ADDRESS} cannot be reached"),
            IDENTITY.user,
            "API server",
            ADDRESS,
        ),
        (
            Unauthorized(CALL, status=401, reason="Unauthorized", message="Unauthorized"),
            IDENTITY.user,
            "secrets_backend",
            "Unauthorized",
        ),
        (
            TooManyRequests(CALL, status=429, reason="TooManyRequests", message="slow down"),
            IDENTITY.user,
            "429 TooManyRequests: slow down",
            ROLES,
        ),
    ],
    ids=[
        "the account may not",
        "there is none",
        "we may not be that user",
        "away",
        "our token is not taken",
        "too many",
    ],
)
async def test_an_error_of_the_api_server_is_explained_to_the_requester(
    error: Any, user: str, shown: str, hidden: str
) -> None:
    message = describe_error(error, Identity(user, "shop", "rule"))
    assert shown in message
    assert hidden not in message
    with pytest.raises(Refusal, match="UpstreamError"):
        await Lookup(cast("Kube", Server(error))).read(IDENTITY, "db", 1.0)


async def test_a_cache_keeps_few_secrets_and_no_large_one() -> None:
    server = Server()
    lookup = Lookup(cast("Kube", server), keep_seconds=60.0)
    for _ in range(2):
        for number in range(MOST_KEPT + 10):
            await lookup.read(IDENTITY, f"s{number}", 1.0)
    assert len(lookup._kept) == MOST_KEPT
    lookup._keep(("u", "n", "large"), {"data": {"x": "A" * (LARGEST_KEPT + 1)}})
    assert ("u", "n", "large") not in lookup._kept


async def test_a_cached_secret_is_not_given_to_another_user() -> None:
    server = Server()
    lookup = Lookup(cast("Kube", server), keep_seconds=60.0)
    for user in ("system:serviceaccount:shop:reader", "system:serviceaccount:shop:other"):
        for _ in range(2):
            await lookup.read(Identity(user, "shop", "rule"), "db", 1.0)
    assert [user for user, _ in server.requested] == [
        "system:serviceaccount:shop:reader",
        "system:serviceaccount:shop:other",
    ]


async def test_an_answer_lost_is_no_fault() -> None:
    class Client:
        max_payload = 100

        async def publish(self, *_: object, **__: object) -> None:
            raise OSError("gone")

    incoming = IncomingRequest("s", b"", None, 0.0, "r", cast("Any", Client()))
    with pytest.raises(AnswerLost, match="OSError"):
        await incoming.answer(b"x")
