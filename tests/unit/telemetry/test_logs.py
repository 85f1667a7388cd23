"""Log lines: JSON for machines, text for people, no secrets in either."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from opentelemetry.sdk.trace import TracerProvider

from trellis.telemetry import bind_service, get_logger, setup_logging
from trellis.telemetry.text import wants_colours

Capture = pytest.CaptureFixture[str]
log = get_logger("trellis.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def records(capsys: Capture) -> list[dict[str, Any]]:
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


def test_a_line_is_json_with_time_level_event_logger_and_fields(capsys: Capture) -> None:
    setup_logging(log_format="json", level="info")
    log.info("node opted in", node="n1", pods=3, path=Path("/x"))
    (record,) = records(capsys)
    time = datetime.fromisoformat(record.pop("time"))
    assert time.utcoffset() == timedelta(0)
    assert record == {
        "level": "info",
        "event": "node opted in",
        "logger": "trellis.test",
        "node": "n1",
        "pods": 3,
        "path": "/x",
    }


def test_inside_a_span_a_line_carries_its_ids(capsys: Capture) -> None:
    setup_logging(log_format="json", level="info")
    with TracerProvider(shutdown_on_exit=False).get_tracer("t").start_as_current_span("s") as span:
        log.info("inside")
        logging.getLogger("trellis.std").warning("inside too")
    log.info("outside")
    first, second, third = records(capsys)
    context = span.get_span_context()
    for record in (first, second):
        assert (int(record["trace_id"], 16), int(record["span_id"], 16)) == (context.trace_id, context.span_id)
        assert (len(record["trace_id"]), len(record["span_id"])) == (32, 16)
    assert "trace_id" not in third


async def test_each_service_of_a_process_has_its_name_on_its_lines(capsys: Capture) -> None:
    setup_logging(log_format="json", level="info")

    async def service(name: str) -> None:
        bind_service(name)
        await asyncio.gather(work())

    async def work() -> None:
        log.info("working")
        logging.getLogger("library").warning("working")

    await asyncio.gather(service("node_watcher"), service("provisioner"))
    log.info("nobody's")
    seen = [str(record.get("service")) for record in records(capsys)]
    assert sorted(seen[:-1]) == ["node_watcher", "node_watcher", "provisioner", "provisioner"]
    assert seen[-1] == "None"


def test_an_exception_is_one_field_without_local_variables(capsys: Capture) -> None:
    setup_logging(log_format="json", level="info")

    secret = "hunter2"

    def connect(password: str) -> None:
        raise ConnectionError(f"cannot reach nats://me:{password}@bus")

    try:
        connect(secret)
    except ConnectionError:
        log.exception("failed")
        logging.getLogger("trellis.std").exception("failed too")
    for record in records(capsys):
        assert "ConnectionError: cannot reach nats://me:***@bus" in record["exception"]
        assert "hunter2" not in json.dumps(record)


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_password_of_a_url_is_hidden_wherever_it_stands(log_format: Literal["json", "text"], capsys: Capture) -> None:
    setup_logging(log_format=log_format, level="info")
    url = "nats://me:hunter2@bus"
    log.info(f"to {url}", url=url, servers=[url], nested={"a": {"b": url}}, error=ValueError(url))  # noqa: G004
    logging.getLogger("trellis.std").warning("to %s", url)
    text = capsys.readouterr().err
    assert "hunter2" not in text
    assert text.count("nats://me:***@bus") == 6


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_values_that_json_does_not_support_are_logged(log_format: Literal["json", "text"], capsys: Capture) -> None:
    setup_logging(log_format=log_format, level="info")
    log.info("odd", thing={1: object()}, huge=2**70, raw=b"\xff", bad="\ud800", chosen={3}, keys={(1, 2): "x"})
    err = capsys.readouterr().err
    assert "odd" in err
    assert len(err.splitlines()) == 1, "logging reported an error of its own"


def test_libraries_log_warnings_only_until_debug_is_requested(capsys: Capture) -> None:
    setup_logging(log_format="json", level="info")
    for name in ("nats.aio", "faststream", "aiohttp.access", "kubernetes.client"):
        logging.getLogger(name).info("chatter")
    logging.getLogger("nats.aio").warning("trouble")
    log.debug("detail")
    assert [record["event"] for record in records(capsys)] == ["trouble"]
    setup_logging(log_format="json", level="debug")
    logging.getLogger("nats.aio").debug("chatter")
    log.debug("detail")
    assert [record["event"] for record in records(capsys)] == ["chatter", "detail"]


def test_responses_of_kubernetes_are_not_logged_even_at_debug(capsys: Capture) -> None:
    setup_logging(log_format="json", level="debug")
    logging.getLogger("kubernetes.client.rest").debug("response body: %s", "a Secret")
    assert records(capsys) == []


def test_faststream_writes_through_the_same_handler(capsys: Capture) -> None:
    library = logging.getLogger("faststream")
    library.addHandler(logging.StreamHandler(sys.stdout))
    library.propagate = False
    setup_logging(log_format="json", level="info")
    library.warning("trouble")
    assert [record["event"] for record in records(capsys)] == ["trouble"]


def test_set_up_twice_logs_once(capsys: Capture) -> None:
    setup_logging(log_format="text", level="debug")
    setup_logging(log_format="json", level="warning")
    log.info("quiet")
    log.warning("once")
    assert [record["event"] for record in records(capsys)] == ["once"]


def test_a_python_warning_is_a_log_line(capsys: Capture) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        setup_logging(log_format="json", level="info")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(capture=False)
    (record,) = records(capsys)
    assert record["logger"] == "py.warnings"


def test_text_is_one_readable_line(capsys: Capture) -> None:
    setup_logging(log_format="text", level="info")
    bind_service("node_watcher")
    with TracerProvider(shutdown_on_exit=False).get_tracer("t").start_as_current_span("s"):
        log.warning("nats is away", url="nats://x:4222", reason="connection refused", nodes=["a"], empty="")
    text = capsys.readouterr().err
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d warning  node_watcher nats is away url=nats://x:4222 reason="connection refused" '
        r'nodes=\["a"\] empty="" trace_id=[0-9a-f]{32}\n',
        text,
    )


def test_text_from_the_cluster_cannot_control_the_terminal(capsys: Capture) -> None:
    setup_logging(log_format="text", level="info")
    log.info("said \033[31m\nfaked line", value="\033[2J", c1="\x9b2J", name="Zürich")
    err = capsys.readouterr().err
    assert err.rstrip("\n").isprintable()
    assert "name=Zürich" in err


def test_text_of_an_exception_follows_the_line(capsys: Capture) -> None:
    setup_logging(log_format="text", level="info")
    try:
        os.environ["NO SUCH VARIABLE"]
    except KeyError:
        log.exception("failed\nbadly")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("failed\\nbadly")
    assert lines[-1] == "KeyError: 'NO SUCH VARIABLE'"


@pytest.mark.parametrize(
    ("stream", "environ", "is_json", "coloured"),
    [
        (io.StringIO, {}, True, False),
        (Terminal, {}, False, True),
        (Terminal, {"NO_COLOR": "1"}, False, False),
        (Terminal, {"TERM": "dumb"}, False, False),
    ],
    ids=["elsewhere JSON", "on a terminal coloured text", "NO_COLOR", "a dumb terminal"],
)
def test_auto_is_text_on_a_terminal_and_json_elsewhere(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], environ: dict[str, str], is_json: bool, coloured: bool
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    stderr = stream()
    monkeypatch.setattr(sys, "stderr", stderr)
    setup_logging(log_format="auto", level="info")
    log.info("hello")
    text = stderr.getvalue()
    assert text.startswith("{") is is_json
    assert ("\033[" in text) is coloured
    assert wants_colours() is coloured


def test_lines_go_to_what_stderr_is_at_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    setup_logging(log_format="json", level="info")
    replaced = io.StringIO()
    monkeypatch.setattr(sys, "stderr", replaced)
    log.info("hello")
    assert "hello" in replaced.getvalue()


def test_before_it_is_set_up_nothing_reaches_stdout() -> None:
    code = "from trellis.telemetry import get_logger; get_logger('x').warning('early'); get_logger('x').info('quiet')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "early" in done.stderr
    assert "quiet" not in done.stderr
