"""`trellis run`: which services go together in one process."""

from __future__ import annotations

from dataclasses import replace

import pytest

import host_manager.settings
import provisioner.settings
from support.suite.naming import lacking
from trellis.config.settings import SettingsError
from trellis_cli.run.services import NAMED, choose, misspelt, refuse_half_confined


def test_a_confined_service_runs_alone_and_not_beside_one_that_works_on_the_whole_cluster() -> None:
    wide = provisioner.settings.Settings()
    confined = host_manager.settings.Settings.model_validate({"watch_namespaces": "team-a"})
    refuse_half_confined([confined])
    refuse_half_confined([wide, host_manager.settings.Settings()])
    with pytest.raises(SettingsError, match=r"\bprovisioner\b"):
        refuse_half_confined([wide, confined])


def test_a_service_without_its_packages_is_left_out_of_all_and_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "controller-host" in choose([])
    monkeypatch.setitem(NAMED, "controller-host", replace(NAMED["controller-host"], needs="no_such_package"))
    assert choose([]) == [name for name, item in NAMED.items() if name != "controller-host" and not item.only_if_named]
    with pytest.raises(SettingsError, match=r"trellis-wasm\[controllers\]"):
        choose(["controller-host"])


def test_a_variable_of_a_command_is_no_slip_of_a_services() -> None:
    assert misspelt({"TRELLIS_JAEGER_URL": "http://127.0.0.1:16686", "TRELLIS_NATS_URL": "nats://127.0.0.1"}) == []
    [warning] = misspelt({"TRELLIS_NATS_URI": "x"})
    assert lacking(warning, "TRELLIS_NATS_URI", "TRELLIS_NATS_URL") == []


def test_the_console_runs_only_if_it_is_named() -> None:
    assert "console" not in choose([])
    assert choose(["console"]) == ["console"]
