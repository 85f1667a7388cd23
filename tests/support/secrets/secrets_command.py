"""``trellis secrets …`` as a person runs it: in a process of its own, at a cluster, for an installation in a namespace.

In: arguments. Out: what it printed, and its exit status. Called by tests. Invariant: nothing that tests plant is in it.
"""

from __future__ import annotations

from pathlib import Path

from support.suite import planted
from support.suite.typed import Done, bare_environment, typed_meanwhile


class SecretsCommand:
    """The command, as the user of the kubeconfig; nothing of Trellis' own settings comes from the test's shell."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._environment = bare_environment(TRELLIS_NAMESPACE=namespace)
        self.come_with(kubeconfig)

    def come_with(self, kubeconfig: Path) -> None:
        """Run the command from now on as another user."""
        self._environment["TRELLIS_KUBECONFIG"] = str(kubeconfig)

    async def run(self, *arguments: str) -> Done:
        """Run it, without a terminal."""
        done = await typed_meanwhile(self._environment, "secrets", *arguments)
        assert planted.found_in((done.stdout + done.stderr).encode()) == [], arguments
        return done
