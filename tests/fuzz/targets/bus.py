"""Data on the bus: events, dead letters, subjects, headers."""

from __future__ import annotations

import asyncio
import functools
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from fuzz.samples import sampled
from fuzz.target import Target, jsonable, tried
from support.suite.mutations import dumped, mutated, spoilt, spoilt_text, text
from trellis.bus.connection.client import RobustNatsClient
from trellis.bus.consume.message import Origin, Reason, UnreadableMessage, compose, read, trace_of
from trellis.bus.dead_letters.read import read_dead_letter, replayed_headers
from trellis.bus.dead_letters.write import Delivered, header_bytes, make_dead_letter
from trellis.bus.streams.stream_reader import Stored
from trellis.events.subjects import (
    EVENT_SPECS,
    ROOT_DEAD,
    PatternError,
    copy_subject,
    dead_subject,
    escape,
    event_filter,
    event_subject,
    is_event_subject,
    pattern_filter,
    spec_of,
    unescape,
)
from trellis.read_model.reading.dead_letters import document, full_document
from trellis.telemetry import TraceContext
from trellis_cli.dead_letters.views import page_of

_MODELS = {spec.type: spec.model for spec in EVENT_SPECS}
_NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_ORIGIN = Origin("cluster1", "provisioner")
_TOKEN_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-=")


def _tokens(subject: str, count: int) -> None:
    """A subject of Trellis is so many tokens of nothing but these characters: nothing leaves its token."""
    tokens = subject.split(".")
    assert len(tokens) == count, subject
    assert all(token and _TOKEN_CHARACTERS.issuperset(token) for token in tokens), subject


def _event(rng: random.Random) -> tuple[bytes, Any]:
    model = rng.choice(EVENT_SPECS).model
    event = sampled(rng, model)
    trace = rng.choice([None, TraceContext(_TRACE), TraceContext(_TRACE, "a=b")])
    time = _NOW + timedelta(microseconds=rng.choice([0, 1, 999_999, 10**9]))
    body, _ = compose(event, origin=_ORIGIN, dedup=rng.choice(["uid/5/node", "é", "x" * 300]), time=time, trace=trace)
    if rng.random() < 0.3:
        return body, event
    return dumped(rng, mutated(rng, json.loads(body))), None


def _judge_event(case: tuple[bytes, Any]) -> str:
    body, expected = case
    outcome, found = tried(lambda: read(body, _MODELS), UnreadableMessage)
    if outcome != "accepted":
        assert expected is None, found
        assert isinstance(found.reason, Reason)
        assert len(str(found)) < 10_000
        return str(found.reason)
    event, event_data = found
    assert expected is None or event_data == expected
    whole = jsonable(body)
    assert isinstance(whole, dict)
    assert _MODELS[whole["type"]] is type(event_data)
    trace_of({}, event)
    _tokens(event_subject("c.1", event_data), 5 + len(event_data.key()))
    assert is_event_subject(event_subject("c.1", event_data))
    again, _ = compose(event_data, origin=_ORIGIN, dedup="x", time=_NOW, trace=None)
    assert read(again, _MODELS)[1] == event_data
    return "accepted"


EVENT = Target(
    "facts",
    "CloudEvents on the bus, and the data of each event type",
    "the published event, or one of three reasons; an accepted event survives a round trip",
    _event,
    _judge_event,
    frozenset({"accepted", "Unparseable", "UnknownType", "WrongData"}),
)


def _names(rng: random.Random) -> tuple[str, ...]:
    return tuple(text(rng, ["node-1.ec2.internal", "a=2Eb", "=", "n"]) for _ in range(rng.randrange(1, 4)))


def _judge_names(names: tuple[str, ...]) -> str:
    for name in names:
        token = escape(name)
        _tokens(token, 1)
        assert unescape(token) == name
    outcome, found = tried(lambda: unescape(names[0]), ValueError)
    assert outcome != "accepted" or escape(found) == names[0]
    _tokens(dead_subject(names[0], "provisioner", "node", names[1:]), 5 + max(1, len(names[1:])))
    _tokens(copy_subject(names[0], names[-1], names[0]), 5)
    assert is_event_subject(copy_subject(names[0], names[-1], names[0]))
    return outcome


NAMES = Target(
    "names-in-subjects",
    "names as tokens of subjects, and back",
    "the same name after a round trip, in one token and distinct from other names; other tokens are refused",
    _names,
    _judge_names,
    frozenset({"accepted", "ValueError"}),
)


def _pattern(rng: random.Random) -> tuple[str, str | None, Any]:
    event = sampled(rng, rng.choice(EVENT_SPECS).model)
    subject = event_subject(cluster := rng.choice(["c1", "c.1"]), event)
    tokens = subject.split(".")[rng.choice([0, 3, 3]) :]
    for _ in range(rng.randrange(3)):
        tokens[rng.randrange(len(tokens))] = rng.choice(["*", ">", "", "node", "a b"])
    pattern = ".".join(tokens[: rng.randrange(1, len(tokens) + 1)] if rng.random() < 0.3 else tokens)
    return spoilt_text(rng, pattern) if rng.random() < 0.3 else pattern, rng.choice([None, cluster, "c2"]), subject


def _matches(subject_filter: str, subject: str) -> bool:
    """NATS' rule, written down once more: ``*`` is one token, ``>`` at the end one or more."""
    wanted, found = subject_filter.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(found) <= len(wanted):
            return False
        found = found[: len(wanted)]
    return len(wanted) == len(found) and all(item in ("*", other) for item, other in zip(wanted, found, strict=True))


def _judge_pattern(case: tuple[str, str | None, str]) -> str:
    pattern, cluster, subject = case
    outcome, found = tried(lambda: pattern_filter(pattern, cluster), PatternError)
    if outcome != "accepted":
        return outcome
    assert found.startswith("trellis.evt.")
    assert all(found.split("."))
    assert found.isprintable()
    assert " " not in found
    if pattern.startswith("trellis."):
        assert found == pattern
    else:
        ours = cluster is None or subject.split(".")[2] == escape(cluster)
        assert _matches(found, subject) == (ours and _matches(pattern, subject.split(".", 3)[3]))
    assert _matches(
        event_filter("c1", spec_of(EVENT_SPECS[0].model).model), event_filter("c1", EVENT_SPECS[0].model)[:-1] + "k"
    )
    return outcome


PATTERN = Target(
    "event-patterns",
    "patterns of `trellis events`",
    "matches the same events relative to its cluster as a second implementation of the NATS rule",
    _pattern,
    _judge_pattern,
    frozenset({"accepted", "PatternError"}),
)


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


_HEADERS = b"NATS/1.0\r\nNats-Msg-Id: uid/5\r\ntraceparent: " + _TRACE.encode() + b"\r\nX: a: b\r\n\r\n"
_HEADER_PIECES = [b"\r\n", b": ", b":", b" ", b"\0", b"\xff", b"\xc3\xa9", b"Status: 404", b"100 Idle", b"\n", b"\t"]


def _delivered(rng: random.Random) -> tuple[bytes, str, bytes, int]:
    headers = _HEADERS if rng.random() < 0.3 else spoilt(rng, _HEADERS, _HEADER_PIECES)
    subject = text(rng, ["trellis.evt.c1.node.ready.n=2E1", "trellis.evt.c1.node", "foo"])
    subject = subject.encode("utf-8", "surrogatepass").decode(errors="backslashreplace")  # as the client does
    body = rng.choice([b"{}", b"\xff", rng.randbytes(rng.randrange(40)), b"x" * 3000])
    return headers, subject, body, rng.choice([0, 200, 900, 2000, 10**6])


def _judge_dead_letter(case: tuple[bytes, str, bytes, int]) -> str:
    """Check that a failed message with any headers becomes a dead letter and is read back unchanged."""
    raw, subject, body, max_bytes = case
    client = RobustNatsClient()
    client._error_cb = _swallow
    found = _loop().run_until_complete(client._process_headers(raw))
    headers = client._build_message(1, subject.encode(), b"$JS.ACK.S.C.1.5.5.0.0", body, found).headers or {}
    message = Delivered(subject, "TRELLIS_EVENTS", "e", 5, 6, body, headers)
    made = make_dead_letter(
        message, cluster="c", reader=("provisioner", "nodes"), reason=Reason.WRONG_DATA, error="é", max_bytes=max_bytes
    )
    assert header_bytes(made.headers) + len(made.body) <= max(max_bytes, header_bytes(made.headers))
    assert all(made.subject.split("."))
    found = read_dead_letter(Stored(7, _NOW, made.subject, made.headers, made.body, len(made.body)), "e2")
    assert (found.service, found.subscription, found.subject) == ("provisioner", "nodes", subject)
    assert found.original_headers == headers
    assert found.truncated in (None, len(body))
    assert body.startswith(found.body)
    assert found.truncated is not None or found.body == body
    kept = replayed_headers(found)
    assert kept.pop("Nats-Msg-Id") == "replay/e2/7"
    assert kept == {name: item for name, item in headers.items() if not name.lower().startswith("nats-")}
    return "cut" if found.truncated is not None else "whole"


async def _swallow(error: Exception) -> None:
    del error


LETTER = Target(
    "dead-letters",
    "headers of NATS messages, and the dead letters of failed messages",
    "every message becomes a dead letter within the size limit, and is restored unchanged",
    _delivered,
    _judge_dead_letter,
    frozenset({"cut", "whole"}),
)

_LETTER_HEADERS = (
    "Trellis-Reason", "Trellis-Error", "Trellis-Subscription", "Trellis-Subject", "Trellis-Stream", "Trellis-Sequence",
    "Trellis-Deliveries", "Trellis-Headers", "Trellis-Truncated", "traceparent",
)  # fmt: skip


def _stored(rng: random.Random) -> Stored:
    good = {
        "Trellis-Subject": ["trellis.evt.c1.node.ready.n1"],
        "Trellis-Headers": ['{"a": "b"}', f'{{"traceparent": "{_TRACE}"}}'],
    }
    headers = {name: text(rng, good.get(name, ["5", "NoResult"])) for name in _LETTER_HEADERS if rng.random() < 0.7}
    subject = f"{ROOT_DEAD}." + ".".join(text(rng, ["c1", "node", "n=2E1"]) for _ in range(rng.randrange(6)))
    body = dumped(rng, mutated(rng, {"id": "x", "data": {"a": [1]}}))
    return Stored(7, _NOW, subject, headers, body, len(body))


def _judge_stored(message: Stored) -> str:
    found = read_dead_letter(message, "e")
    for shown in (page_of(found), json.dumps(document(found)), json.dumps(full_document(found))):
        shown.encode()
    if not found.obstacle:
        assert is_event_subject(found.subject)
        _tokens(found.subject, len(found.subject.split(".")))
        assert all(isinstance(replayed_header, str) for replayed_header in replayed_headers(found).values())
    return "may be replayed" if not found.obstacle else "has an obstacle"


STORED = Target(
    "garbage-in-the-dead-letters",
    "arbitrary content of the stream of dead letters",
    "a dead letter that can be shown; a replay is sent only to a subject of Trellis",
    _stored,
    _judge_stored,
    frozenset({"may be replayed", "has an obstacle"}),
    share=6,
)

TARGETS = (EVENT, NAMES, PATTERN, LETTER, STORED)
