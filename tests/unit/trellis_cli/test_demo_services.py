"""The process that the demo starts: it gets settings of the services, and no variable that they report as unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from trellis_cli.common.errors import CommandError
from trellis_cli.run.services import misspelt
from trellis_dev.demo import target
from trellis_dev.demo.services import RUN, Services
from trellis_dev.localcluster.processes import ProcessRecord
from trellis_dev.localcluster.supervisor import CLUSTER_VARIABLE

TOKEN = "0123456789abcdef"


async def test_the_services_of_the_demo_know_all_its_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[str, str] = {}

    def spawn(services: Services, **more: str) -> ProcessRecord:
        given.update(services.environment, **more, **{CLUSTER_VARIABLE: services.token})
        raise CommandError("not started")

    monkeypatch.setattr(Services, "spawn", spawn)
    services = Services(RUN, target._RUN, tmp_path / "log", TOKEN, "the services")
    with pytest.raises(CommandError):
        await services.start(TRELLIS_OTLP_ENDPOINT="http://127.0.0.1:4318")
    assert TOKEN in given.values()
    assert target._RUN.items() <= given.items()
    assert misspelt(given) == []
