"""Fixtures every test may use; the parts live in tests/support."""

from __future__ import annotations

import signal

from hypothesis import settings

# A shell that runs the suite in the background has it ignore SIGINT, and every process a test interrupts would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long one example takes is the machine's affair; a test that hangs has pytest's own timeout.
settings.register_profile("trellis", deadline=None)
settings.load_profile("trellis")

pytest_plugins = [
    "support.cluster",
    "support.durations",
    "support.real_lattice",
    "support.faked_clock",
    "support.fleet",
    "support.golden",
    "support.host_world",
    "support.jaeger",
    "support.kept",
    "support.page_browser",
    "support.page_visits",
    "support.reflected",
    "support.secrets_world",
    "support.shims",
    "support.tenants",
    "support.typed",
]
