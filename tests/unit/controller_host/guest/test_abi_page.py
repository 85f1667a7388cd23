"""The smallest module of docs/controller-abi.md is a controller: it starts, logs its requests and reports success."""

from __future__ import annotations

import re

import pytest
import wasmtime

from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.instance import Instance
from controller_host.guest.limits import Limits
from controller_host.guest.modules import Module, Modules
from support.guests import wat
from support.suite.pages import DOCS


@pytest.fixture
def module(modules: Modules) -> Module:
    (source,) = re.findall(r"```wat\n(.*?)```", (DOCS / "controller-abi.md").read_text(), re.DOTALL)
    return modules.load(bytes(wasmtime.wat2wasm(source)))


def test_the_smallest_module_logs_its_request_and_succeeds(module: Module) -> None:
    host = wat.RecordingHost()
    guest = Instance.boot(module, Limits(memory_bytes=1 << 20), host)
    assert guest.call("reconcile", b'{"key": {}}').answer == b"{}"
    assert [text for _, text in host.lines] == ['{"key": {}}']


def test_the_smallest_module_reports_a_request_that_is_too_large_for_its_buffer(module: Module) -> None:
    guest = Instance.boot(module, Limits(memory_bytes=1 << 20), wat.RecordingHost())
    with pytest.raises(GuestFault) as refused:
        guest.call("reconcile", b" " * 64_513)
    assert refused.value.kind is FaultKind.MEMORY_EXCEEDED
