"""What `trellis dev page` does; loaded only when it runs, because it needs the extra ``local``.

In: a checkout. Out: the page beside the console's modules; where, on standard output. Called by
:mod:`trellis_bundle.dev`.
"""

from __future__ import annotations

import threading
from pathlib import Path

import typer

from trellis.localcluster import chromium, page
from trellis.localcluster.building import How
from trellis.localcluster.progress import on_stderr
from trellis_bundle.dev_local import ending_well


def build(checkout: Path, *, check: bool, browser: bool) -> None:
    """Build the page, and do what else is asked for."""
    with ending_well("building the console's page"), on_stderr() as progress:
        how = How(progress, threading.Event())
        built = page.build_page(checkout.resolve(), how)
        if check:
            page.check_page(checkout.resolve(), how)
        found = chromium.chromium(how).program if browser else None
    typer.echo(f"{'page':<24} {built}")
    if found is not None:
        typer.echo(f"{'chromium':<24} {found}")
