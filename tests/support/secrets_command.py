"""``trellis secrets …`` as a person runs it: in a process of its own, at a cluster, for an installation in a namespace.

In: arguments. Out: what it printed, and its exit status. Called by tests. Invariant: nothing that tests plant is in it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from support import planted


class SecretsCommand:
    """The command, as whoever the kubeconfig is of; nothing of Trellis' own settings comes from the test's shell."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("TRELLIS_")}
        self._environment["TRELLIS_NAMESPACE"] = namespace
        self.come_with(kubeconfig)

    def come_with(self, kubeconfig: Path) -> None:
        """Run the command from now on as somebody else."""
        self._environment["TRELLIS_KUBECONFIG"] = str(kubeconfig)

    async def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it, without a terminal."""
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "trellis_bundle", "secrets", *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert planted.found_in((done.stdout + done.stderr).encode()) == [], arguments
        return done
