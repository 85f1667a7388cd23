"""Objects loaded at the start of a service cost no garbage collections, then and while they are loaded."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

import node_watcher.__main__
import provisioner.__main__
from trellis.runtime import gc as runtime_gc
from trellis.services import SERVICES
from trellis_cli.run.services import RunFlags, run

COUNTED = """
import gc, runpy, sys
begun = []
gc.callbacks.append(lambda phase, _: begun.append(phase) if phase == "start" else None)
package = sys.argv.pop(1)
try:
    runpy.run_module(package, run_name="__main__")
except SystemExit:
    pass
print(len(begun), gc.isenabled(), len(sys.modules))
"""


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return the number of frozen objects at the start of each event loop."""
    seen: list[int] = []

    def begun(main: Coroutine[Any, Any, None]) -> None:
        main.close()
        seen.append(gc.get_freeze_count())

    monkeypatch.setattr(asyncio, "run", begun)
    for module in ("trellis.runtime.run", "trellis_cli.run.services"):
        monkeypatch.setattr(f"{module}.setup_logging", lambda **_: None)
    yield seen
    gc.unfreeze()


@pytest.mark.parametrize("main", [node_watcher.__main__.main, provisioner.__main__.main, lambda: run([], RunFlags())])
def test_every_way_to_start_a_service_freezes_what_is_loaded(main: Any, frozen: list[int]) -> None:
    main()
    (count,) = frozen
    assert count > 10_000


def test_the_collector_rests_within_and_works_again_after_a_failure() -> None:
    def fail() -> None:
        with runtime_gc.importing():
            with runtime_gc.importing():
                assert not gc.isenabled()
            assert not gc.isenabled()
            raise ImportError

    with pytest.raises(ImportError):
        fail()
    assert gc.isenabled()


@pytest.mark.parametrize(
    "package", [pytest.param(service, marks=pytest.mark.thorough) for service in SERVICES] + ["trellis_cli"]
)
def test_next_to_nothing_is_collected_while_a_service_is_imported(package: str) -> None:
    arguments = ["run", "--help"] if package == "trellis_cli" else []
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, package, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TRELLIS_NATS_URL": "no url"},  # at which a service ends
    )
    collections, enabled, modules = done.stdout.split()[-3:]
    assert int(modules) > 600, done.stderr
    assert int(collections) < 30
    assert enabled == "True"


@pytest.mark.parametrize("former", [False, True])
def test_caches_of_a_term_are_excluded_until_its_end_and_garbage_of_a_former_one_is_collected(*, former: bool) -> None:
    class Term:
        pass

    ended = Term()
    ended.itself = ended  # type: ignore[attr-defined]
    garbage = weakref.ref(ended)
    gc.collect()  # moves it to the oldest generation
    del ended
    with runtime_gc.caches_excluded(former=former):
        assert gc.get_freeze_count() > 10_000
        gc.collect()
        assert (garbage() is None) == former
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert garbage() is None
