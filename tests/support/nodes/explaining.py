"""``trellis explain`` and ``trellis status``, run as a person runs them, on a situation that stands."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from support.nodes.fleet import Fleet
from support.nodes.situations import SITUATIONS
from support.suite.typed import Done, bare_environment, typed_meanwhile
from trellis_dev.localcluster import ClusterInfo

PATIENCE = 60.0
Manifest = dict[str, Any]


class User:
    """The user who runs the commands: with a kubeconfig, and the settings of an installation."""

    def __init__(self, kubeconfig: Path, nats_url: str, system: str, installers: str) -> None:
        self.environment = bare_environment(
            TRELLIS_KUBECONFIG=str(kubeconfig),
            TRELLIS_NATS_URL=nats_url,
            TRELLIS_NAMESPACE=system,
            TRELLIS_CLAIM_NAMESPACE=system,
            TRELLIS_INSTALLER_NAMESPACE=installers,
        )

    @classmethod
    def of(cls, fleet: Fleet) -> User:
        """Return who looks after a fleet."""
        return cls(Path(fleet.info.kubeconfig), str(fleet.info.nats_url), fleet.system, fleet.installers)

    @classmethod
    def at(cls, cluster: ClusterInfo, nats_url: str, system: str) -> User:
        """Return who looks after an installation in a namespace."""
        return cls(Path(cluster.kubeconfig), nats_url, system, system)

    async def run(self, *arguments: str) -> Done:
        """Run a command of ``trellis``."""
        return await typed_meanwhile(self.environment, *arguments)

    async def document(self, *arguments: str) -> tuple[int, Manifest]:
        """Return the exit status and the JSON of a command."""
        done = await self.run(*arguments, "-o", "json")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    async def finds(self, situation: str, what: str, *options: str) -> Manifest:
        """Wait until a page's answer is that of a situation, see that all forms agree, and return its JSON."""
        wanted = SITUATIONS[situation]
        code, page = await self.document("explain", what, *options)
        try:
            async with asyncio.timeout(PATIENCE):
                while not (page["cause"] and wanted.fits(page)):
                    code, page = await self.document("explain", what, *options)
        except TimeoutError:
            raise AssertionError(f"{situation}: it says\n{page}\nand not\n{wanted}") from None
        assert (code, page["ok"]) == (1, False)
        assert page["headline"].startswith(page["subject"])
        shown = await self.run("explain", what, *options)
        assert shown.returncode == 1
        assert wanted.names(shown.stdout.splitlines()[0]), shown.stdout
        return page

    async def counts(self, situation: str, name: str, page: Manifest) -> None:
        """See that the status has the same cause in its row, with the command that says more."""
        row = SITUATIONS[situation].row
        async with asyncio.timeout(PATIENCE):
            while True:
                code, status = await self.document("status")
                found = status[row]
                if name in (found["causes"] or {}):
                    break
        assert code == 1
        assert found["ok"] is False
        # A row has a cause without where it was told, and a long one without its middle or its end.
        # What counts, or says when, goes on between two looks.
        cause = found["causes"][name].partition("…")[0].rstrip().partition(" (at ")[0]
        assert cause[:150] in page["cause"].replace(" on ", ": ") or cause.partition(": ")[2][:150] in page["cause"], (
            found
        )
        kind = page["subject"].partition(" ")[0]
        assert f"trellis explain {kind}/" in found["problem"]
