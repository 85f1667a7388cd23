"""The store of JetStream beneath a lattice is restored from a backup: an older state of wadm deletes nothing."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from support.lattices.real_lattice import Wadm, application, wasm_component
from support.wadm.application_behaviour import models, wadm_has
from support.wadm.application_world import ApplicationWorld, spec
from trellis_dev.localcluster.nats import NatsServer


@dataclass
class Restored:
    """A lattice's own NATS, whose store in ``folder`` is copied and put back."""

    server: NatsServer
    folder: Path

    def back_up(self) -> None:
        self.server.stop()
        shutil.copytree(self.folder / "store", self.folder / "backup")
        self.server.start()

    def restore(self) -> None:
        self.server.stop()
        shutil.rmtree(self.folder / "store")
        shutil.copytree(self.folder / "backup", self.folder / "store")
        self.server.start()


class RestoredBehaviour:
    """With each wadm: ``apps`` and ``wadm`` are on the NATS that is restored."""

    async def test_an_older_state_removes_nothing_and_missing_models_are_put_again(
        self, apps: ApplicationWorld, wadm: Wadm, restored: Restored
    ) -> None:
        apps.group()
        async with apps.manager():
            apps.apply("before", spec(), annotations={"version": "v1"})
            await wadm.put(application("theirs", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            await apps.synced("before", version="v1")
            await apps.synced("theirs", deployed=False)
            await asyncio.to_thread(restored.back_up)
            apps.apply("after", spec(), annotations={"version": "v1"})
            newer = spec("file:///none-2.wasm")
            apps.patch("before", {"metadata": {"annotations": {"version": "v2"}}, "spec": newer})
            await apps.synced("after", version="v1")
            await apps.synced("before", version="v2")
            uids = {name: (apps.find(name) or {})["metadata"]["uid"] for name in ("before", "after", "theirs")}
            await asyncio.to_thread(restored.restore)
            await wadm_has(wadm, "after")
            await apps.synced("after", version="v1")
            await wadm_has(wadm, "before", deployed_version="v2")
            await apps.synced("before", version="v2")
            assert (apps.find("before") or {})["spec"] == newer
            assert {*await models(wadm)} == uids.keys()
            assert {name: (apps.find(name) or {})["metadata"]["uid"] for name in uids} == uids
