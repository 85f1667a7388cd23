"""A command's connection: an error leaves nothing running that would report its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from trellis_cli.common.gather import connected
from trellis_cli.common.settings import ClientSettings


def test_an_error_ends_the_requests_beside_it_without_a_word(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c"}}
    config.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "c"}))
    ended = []

    async def fails() -> None:
        raise LookupError("the error of the command")

    async def fails_when_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
            raise OSError("an error beside it")

    async def command() -> None:
        async with connected(ClientSettings(kubeconfig=config)):
            await asyncio.gather(fails_when_cancelled(), fails())

    with pytest.raises(LookupError, match="of the command"):
        asyncio.run(command())
    assert ended == [True]
    assert capfd.readouterr().err == ""
