"""Nothing that a test of secrets plants comes out anywhere, or the test fails (``support.suite.planted``).

Looked through after each test: what was printed and logged in its process; the logs of services that ran apart; the
files in which the bus and the lattices' NATS keep messages: events, dead letters, copies. What commands print is looked
through where they are run (``support.secrets.secrets_command``), spans and metrics by ``test_said``, with a collector.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from support.suite import planted


@pytest.fixture(autouse=True)
def _log_checked(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Iterator[None]:
    """Have the service say all it can, and look through the files that processes and servers wrote meanwhile."""
    for name in ("secrets_backend", "trellis"):
        caplog.set_level(logging.DEBUG, logger=name)
    folders, began = [tmp_path], time.time()
    if "cluster" in request.fixturenames:
        folders.append(Path(request.getfixturevalue("cluster").kubeconfig).parent)
    yield
    for path in (path for folder in folders for path in planted.outputs(folder, began)):
        assert planted.found_in(path.read_bytes()) == [], path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that is over and well, if something that it planted was printed or logged."""
    report = yield
    if report.when == "teardown" and report.passed:
        printed = "\n".join(text for _, text in report.sections).encode(errors="backslashreplace")
        if found := planted.found_in(printed):
            report.outcome = "failed"
            report.longrepr = f"{item.name} had this said:\n" + "\n".join(found)
    return report
