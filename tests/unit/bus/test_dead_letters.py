"""Dead letters are read back as they were written, and any other message there is a dead letter with gaps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trellis.bus.consume.message import Reason
from trellis.bus.dead_letters.read import DeadLetter, read_dead_letter, replayed_headers
from trellis.bus.dead_letters.write import (
    HEADER_DELIVERIES,
    HEADER_HEADERS,
    HEADER_REASON,
    HEADER_SEQUENCE,
    HEADER_SUBJECT,
    HEADER_TRUNCATED,
    Delivered,
    make_dead_letter,
)
from trellis.bus.streams.stream_reader import Stored
from trellis.read_model.reading.dead_letters import document, full_document
from trellis_cli.common.output import one_line
from trellis_cli.dead_letters.views import page_of

NOW = datetime(2026, 1, 31, tzinfo=UTC)
NAMES = st.text(min_size=1, max_size=20)
HEADERS = st.dictionaries(
    st.sampled_from(
        [HEADER_REASON, HEADER_SUBJECT, HEADER_SEQUENCE, HEADER_DELIVERIES, HEADER_HEADERS, HEADER_TRUNCATED]
    ),
    st.text() | st.sampled_from(["{", "[]", '{"a": 1}', "٣", "1" * 5000, "-1"]),
)


def stored(subject: str, headers: dict[str, str], body: bytes = b"") -> Stored:
    return Stored(7, NOW, subject, headers, body, len(body))


def written(**changes: Any) -> DeadLetter:
    fields: dict[str, Any] = {
        "subject": "trellis.evt.c.node.gone.n=2E1",
        "stream": "TRELLIS_EVENTS",
        "epoch": "e",
        "sequence": 5,
        "deliveries": 6,
        "body": b"body",
        "headers": {"X": "y"},
    }
    message = Delivered(**fields | changes)
    made = make_dead_letter(
        message, cluster="c", reader=("provisioner", "nodes"), reason=Reason.NO_RESULT, error="why", max_bytes=1_000_000
    )
    return read_dead_letter(stored(made.subject, made.headers, made.body), "abc")


def test_a_dead_letter_is_read_back_unchanged() -> None:
    found = written()
    assert (found.cluster, found.reader, found.noun, found.key) == ("c", "provisioner/nodes", "node", ("n.1",))
    assert (found.reason, found.error, found.deliveries) == ("NoResult", "why", 6)
    assert (found.subject, found.stream, found.original_sequence) == (
        "trellis.evt.c.node.gone.n=2E1",
        "TRELLIS_EVENTS",
        5,
    )
    assert (found.original_headers, found.body, found.obstacle) == ({"X": "y"}, b"body", "")


@given(st.dictionaries(st.from_regex(r"[A-Za-z-]{1,20}", fullmatch=True), st.text()))
def test_the_originals_headers_come_back_but_those_for_the_server(headers: dict[str, str]) -> None:
    found = written(headers=headers | {"Nats-Rollup": "all", "nats-expected-stream": "X", "Nats-Msg-Id": "1"})
    kept = {name: value for name, value in headers.items() if not name.lower().startswith("nats-")}
    assert replayed_headers(found) == kept | {"Nats-Msg-Id": "replay/abc/7"}


@given(st.text(), HEADERS, st.binary(max_size=50))
def test_any_content_of_the_stream_can_be_shown(subject: str, headers: dict[str, str], body: bytes) -> None:
    found = read_dead_letter(stored(f"trellis.dead.{subject}", headers, body), "abc")
    page_of(found).encode()
    full_document(found)
    document(found)
    assert isinstance(found.obstacle, str)


@given(st.text())
def test_text_from_outside_stays_on_its_line_and_steers_no_terminal(text: str) -> None:
    assert one_line(text).isprintable()
