"""Fixtures every test may use; the parts live in tests/support."""

from __future__ import annotations

import signal

from hypothesis import settings

# A shell that runs the suite in the background has it ignore SIGINT, and every process a test interrupts would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long one example takes is the machine's affair; a test that hangs has pytest's own timeout.
# Thirty examples of each property are what a change is checked with; make fuzz tries many more.
settings.register_profile("trellis", deadline=None, max_examples=30)
settings.load_profile("trellis")

pytest_plugins = [
    "support.cluster.servers",
    "support.suite.durations",
    "support.suite.restored_logging",
    "support.suite.slow",
    "support.lattices.real_lattice",
    "support.suite.faked_clock",
    "support.nodes.fleet",
    "support.suite.golden",
    "support.lattices.host_world",
    "support.suite.jaeger",
    "support.wadm.application_world",
    "support.console.page_browser",
    "support.console.page_visits",
    "support.lattices.reflected",
    "support.secrets.secrets_world",
    "support.nodes.shims",
    "support.nats.tenants",
    "support.suite.typed",
]
