"""Implements `trellis dev page`; imported only when the command runs.

In: a checkout. Out: the page next to the modules of the console; its path on standard output. Called by
:mod:`trellis_dev.commands.dev`.
"""

from __future__ import annotations

import threading
from pathlib import Path

import typer

from trellis_dev.commands.local import reporting_errors
from trellis_dev.localcluster import chromium, page
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.progress import on_stderr


def build(checkout: Path, *, check: bool, browser: bool) -> None:
    """Build the page; optionally check it and install the test browser."""
    with reporting_errors("building the console's page"), on_stderr() as progress:
        how = How(progress, threading.Event())
        built = page.build_page(checkout.resolve(), how)
        if check:
            page.check_page(checkout.resolve(), how)
        found = chromium.chromium(how).program if browser else None
    typer.echo(f"{'page':<24} {built}")
    if found is not None:
        typer.echo(f"{'chromium':<24} {found}")
