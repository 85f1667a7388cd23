"""The store of JetStream beneath a lattice is restored from a backup: an older state of wadm deletes nothing."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from support.lattices.real_lattice import Wadm, application, wasm_component
from support.wadm.kept import KeptWorld, spec
from support.wadm.kept_behaviour import models, wadm_has
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
    """With each wadm: ``kept`` and ``wadm`` are on the NATS that is restored."""

    async def test_an_older_state_takes_nothing_away_and_what_it_lacks_is_put_again(
        self, kept: KeptWorld, wadm: Wadm, restored: Restored
    ) -> None:
        kept.group()
        async with kept.manager():
            kept.apply("before", spec(), annotations={"version": "v1"})
            await wadm.put(application("theirs", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            await kept.synced("before", version="v1")
            await kept.synced("theirs", deployed=False)
            await asyncio.to_thread(restored.back_up)
            kept.apply("after", spec(), annotations={"version": "v1"})
            newer = spec("file:///none-2.wasm")
            kept.patch("before", {"metadata": {"annotations": {"version": "v2"}}, "spec": newer})
            await kept.synced("after", version="v1")
            await kept.synced("before", version="v2")
            uids = {name: (kept.find(name) or {})["metadata"]["uid"] for name in ("before", "after", "theirs")}
            await asyncio.to_thread(restored.restore)
            await wadm_has(wadm, "after")
            await kept.synced("after", version="v1")
            await wadm_has(wadm, "before", deployed_version="v2")
            await kept.synced("before", version="v2")
            assert (kept.find("before") or {})["spec"] == newer
            assert {*await models(wadm)} == uids.keys()
            assert {name: (kept.find(name) or {})["metadata"]["uid"] for name in uids} == uids
