"""Commands of ``trellis`` as a person types them: a process of its own, with nothing of the suite's own settings.

In: words, settings. Out: what it printed, and its exit status. Called by tests.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

Done = subprocess.CompletedProcess[str]
PATIENCE_SECONDS: Final = 120.0


def bare_environment(**settings: str) -> dict[str, str]:
    """Return the environment without settings of Trellis and without a kubeconfig, and with these."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("TRELLIS_", "KUBE"))}
    return bare | settings


def typed(environment: Mapping[str, str], *words: str) -> Done:
    """Run ``trellis`` with these words, without a terminal, and return how it ended."""
    return subprocess.run(
        [sys.executable, "-m", "trellis_bundle", *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


async def typed_meanwhile(environment: Mapping[str, str], *words: str) -> Done:
    """Do so while services run in this process."""
    return await asyncio.to_thread(typed, environment, *words)
