"""wadm's answers after a permission to ask it was taken by a reload of NATS, and given back."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import nats
from nats.aio.msg import Msg

from support.nats.buses import eventually
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.domain.subjects import model_list_subject
from trellis.lattice.follow.lattice_watches import LatticeWatches, Part
from trellis.lattice.timings import LatticeTimings, ModelWatchTimings
from trellis_dev.localcluster.nats import NatsServer

RECOVERS_SECONDS = 30.0
QUICK = LatticeTimings(models=ModelWatchTimings(refresh=3600.0, again=0.5))


def permissions(publish: str) -> str:
    user = f"{{user: link, password: password, permissions: {{publish: {publish}}}}}"
    return f"authorization {{ users: [{user}, {{user: all, password: password}}] }}"


async def test_wadm_is_asked_again_within_thirty_seconds_after_the_permission_is_back(tmp_path: Path) -> None:
    production = ModelWatchTimings()
    assert production.again + production.answer < RECOVERS_SECONDS
    config, allowed, denied = tmp_path / "nats.conf", permissions('">"'), permissions('{deny: "wadm.>"}')
    config.write_text(denied)

    async def answer(message: Msg) -> None:
        await message.respond(b'{"result": "success", "models": []}')

    with NatsServer(tmp_path / "server", config=config) as server:
        wadm = await nats.connect(server.url.replace("//", "//all:password@"))
        await wadm.subscribe(model_list_subject("default", ""), cb=answer)
        async with LatticeWatches[str]("trellis-test", lambda _: None, parts=(Part.MODELS,), timings=QUICK) as lattices:
            link = NatsAddress(server.url.replace("//", "//link:password@"))
            await lattices.need("key", LatticeAddress(link, "default"))

            def reason() -> str:
                view = lattices.view("key")
                return view.models_reason if view is not None else ""

            await eventually(lambda: '"wadm.api.' in reason())
            config.write_text(allowed)
            assert server.pid is not None
            os.kill(server.pid, signal.SIGHUP)
            await eventually(lambda: not reason(), RECOVERS_SECONDS)
        await wadm.close()
