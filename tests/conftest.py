"""Fixtures every test may use; the parts live in tests/support."""

from __future__ import annotations

import signal

# A shell that runs the suite in the background has it ignore SIGINT, and every process a test interrupts would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["support.cluster", "support.fleet", "support.golden", "support.shims"]
