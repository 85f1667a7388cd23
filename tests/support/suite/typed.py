"""``trellis`` as users type it: a process for each command, with the environment that a test gives it and no more.

The processes are forked from one that has imported all commands, because the imports are most of the processor time of
a short command. ``tests/integration/packaging`` runs the installed program.

In: words, an environment. Out: what it printed, and its exit status. Called by tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from support.suite.forkserver import Child, Forkserver, forkserver
from support.suite.suite_accounts import KUBECONFIG_VARIABLE, SITE

Done = subprocess.CompletedProcess[str]
PATIENCE_SECONDS: Final = 120.0
TESTS: Final = Path(__file__).parents[2]
_held = contextlib.ExitStack()


def bare_environment(**settings: str) -> dict[str, str]:
    """Return the environment without settings of Trellis and without a kubeconfig, and with these."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("TRELLIS_", "KUBE"))}
    return bare | settings


def typed(environment: Mapping[str, str], *arguments: str) -> Done:
    """Run ``trellis`` with these words, without a terminal, and return how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder) / "output", Path(folder) / "errors"
        child = started(environment, *arguments, log=output, errors=errors)
        code = child.end_within(PATIENCE_SECONDS)
        if code is None:
            child.kill()
            raise subprocess.TimeoutExpired(["trellis", *arguments], PATIENCE_SECONDS, errors.read_bytes())
        return Done(["trellis", *arguments], code, output.read_text("utf-8"), errors.read_text("utf-8"))


async def typed_meanwhile(environment: Mapping[str, str], *arguments: str) -> Done:
    """Do so while services run in this process."""
    return await asyncio.to_thread(typed, environment, *arguments)


def started(environment: Mapping[str, str], *arguments: str, log: Path, errors: Path | None = None) -> Child:
    """Start ``trellis`` with these words; what it prints goes to the end of files."""
    return _forkserver().start(environment, arguments, log, errors=errors, bare=True)


@functools.cache
def _forkserver() -> Forkserver:
    # Services of its children come as their accounts, if a child's environment names a cluster that has some.
    paths = os.pathsep.join(map(str, (SITE, TESTS)))
    return _held.enter_context(forkserver("support.suite.typed_process", PYTHONPATH=paths, **{KUBECONFIG_VARIABLE: ""}))


@pytest.hookimpl
def pytest_sessionfinish() -> None:
    """End the process that forks: this module is a plugin of pytest."""
    _held.close()
