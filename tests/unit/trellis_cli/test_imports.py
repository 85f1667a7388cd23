"""The memory of all services in one process before there is any work: no modules that only some clusters need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trellis_cli import command_line
from trellis_cli.__main__ import main
from trellis_cli.common.messages import EXIT_INTERRUPTED

AS_IT_RUNS = """
import sys
from pathlib import Path

from trellis_cli.commands import load
load("run")
from trellis.config.settings import load
from trellis.services import SERVICES
assert [one.load("app").create_app(load(one.settings)) for one in SERVICES.values()]
"""
ASKED = """
from controller_host.scheduler.guests import LocalGuests
guests = LocalGuests(Path(sys.argv[1]))
assert guests.uids() == set()
guests.sweep((), ())
guests.close()
print("wasmtime" in sys.modules)
guests = LocalGuests(Path(sys.argv[1]))
guests.require()
guests.close()
print("wasmtime" in sys.modules)
"""

LOADED = """
from trellis.crds.api import ApiModel
from trellis.events.envelope import EventData
unused = ("cryptography", "kubernetes.aio.config.kube_config", "pygments", "rich", "urllib3", "yaml")
print(*(name for name in unused if name in sys.modules))
models = ApiModel.__subclasses__() + EventData.__subclasses__()
print(*(model.__name__ for model in models if model.__pydantic_complete__))
import rich.traceback
"""


def printed(program: str, directory: Path) -> list[str]:
    environment = {**os.environ, "TRELLIS_CONTROLLER_DATA_DIR": str(directory / "data")}
    done = subprocess.run(
        [sys.executable, "-c", AS_IT_RUNS + program, str(directory / "guests")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_engine_of_controllers_is_loaded_when_a_guest_is_to_run_and_not_before(tmp_path: Path) -> None:
    assert printed(ASKED, tmp_path) == ["False", "True"]


def test_a_process_has_in_memory_neither_what_a_terminal_or_a_kubeconfig_needs_nor_a_validator(tmp_path: Path) -> None:
    """A command that prints tables can still import the modules that print them."""
    assert printed(LOADED, tmp_path) == []


def test_an_interrupt_during_the_import_of_a_command_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "main", load)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == EXIT_INTERRUPTED
