"""The installer on a node whose containerd is configured and restarted as by k3s; k3s itself is a stand-in.

containerd is the real one, and restarts for real: by the service, and by the end of the node's first process.
"""

from __future__ import annotations

import signal
import threading
import tomllib
from collections.abc import Iterator

import pytest

from support.k3s.node import CONFIG, CONTAINER, MACHINE, OWN, K3sNode
from support.k3s.stand_in import BASE, HANDLER, SHIM, Run, StandIn, stand_in
from trellis.installer_api.result import Outcome
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.progress import Lines

HOW = How(Lines(), threading.Event())
INCLUDING = '{{ template "base" . }}\n# of the user\n'
DROPIN = "config-v3.toml.d/trellis.toml"
SYSTEMD = """\
version = 3

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = true
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with stand_in(tmp_path_factory.mktemp("k3s"), HOW, MACHINE) as made:
        assert made.node.files().keys() == {CONFIG, *OWN}
        yield made


def is_clean(found: StandIn, before: dict[str, bytes]) -> bool:
    return (
        found.node.changed(before) == set()
        and HANDLER not in found.handlers()
        and not (found.node.upper / BASE).exists()
    )


def outcome(run: Run) -> tuple[Outcome, bool]:
    assert run.result is not None
    return run.result.outcome, run.result.restarted


def installed_and_removed(found: StandIn, changed: set[str]) -> None:
    """Install the shim, restart the service, and remove the shim."""
    node = found.node
    before, service = node.files(), node.service()
    assert outcome(found.install()) == (Outcome.INSTALLED, True)
    assert node.service() != service
    assert node.changed(before) == changed
    assert found.handlers()[HANDLER] == SHIM
    files = node.files()
    node.restart_service()
    assert node.files() == files
    assert found.handlers()[HANDLER] == SHIM
    assert outcome(found.install()) == (Outcome.UNCHANGED, False)
    assert outcome(found.uninstall()) == (Outcome.REMOVED, True)
    assert is_clean(found, before)


def test_a_drop_in_is_added_beside_that_of_the_user(machine: StandIn) -> None:
    installed_and_removed(machine, {DROPIN})


def test_the_shim_has_the_cgroup_driver_that_containerd_reports(machine: StandIn) -> None:
    node = machine.node
    driver = node.etc / "config-v3.toml.d/driver.toml"
    driver.write_text(SYSTEMD)
    node.run("mkdir", "/run/dbus")
    node.run("touch", "/run/dbus/system_bus_socket")
    node.restart_service()
    before = node.files()
    assert outcome(machine.install()) == (Outcome.INSTALLED, True)
    [plugin] = tomllib.loads((node.etc / DROPIN).read_text())["plugins"].values()
    assert plugin["containerd"]["runtimes"][HANDLER]["options"] == {"SystemdCgroup": True}
    assert machine.handlers()[HANDLER] == SHIM
    assert outcome(machine.install()) == (Outcome.UNCHANGED, False)
    assert outcome(machine.uninstall()) == (Outcome.REMOVED, True)
    assert is_clean(machine, before)
    driver.unlink()
    node.restart_service()


@pytest.mark.parametrize(
    ("name", "includes_base"),
    [("config-v3.toml.tmpl", True), ("config-v3.toml.tmpl", False), ("config.toml.tmpl", True)],
    ids=["version 3 with imports", "version 3 without imports", "version 2"],
)
def test_a_template_of_the_user_is_kept(machine: StandIn, name: str, includes_base: bool) -> None:
    node = machine.node
    template = node.etc / name
    template.write_text(INCLUDING if includes_base else without_imports(node))
    node.restart_service()
    imports = includes_base and name.startswith("config-v3")
    installed_and_removed(machine, {DROPIN} if imports else {name, CONFIG})
    template.unlink()
    node.restart_service()


def without_imports(node: K3sNode) -> str:
    """Return a template as users have it that copied the configuration of a k3s before its imports."""
    lines = (node.etc / CONFIG).read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("imports"))


def test_the_directory_of_drop_ins_is_created_and_removed(machine: StandIn) -> None:
    node = machine.node
    for name in OWN:
        (node.etc / name).unlink()
        (node.etc / name).parent.rmdir()
    installed_and_removed(machine, {DROPIN})
    assert [path.name for path in node.etc.iterdir()] == [CONFIG]


def test_the_next_run_completes_the_work_after_the_end_of_the_node(tmp_path_factory: pytest.TempPathFactory) -> None:
    with stand_in(tmp_path_factory.mktemp("k3d"), HOW, CONTAINER) as found:
        node = found.node
        before = node.files()
        killed = Run(-signal.SIGKILL, None)
        assert found.install() == killed
        node.restart()
        assert outcome(found.install()) == (Outcome.INSTALLED, False)
        assert node.changed(before) == {DROPIN}
        assert found.handlers()[HANDLER] == SHIM
        assert found.uninstall() == killed
        node.restart()
        assert outcome(found.uninstall()) == (Outcome.REMOVED, False)
        assert is_clean(found, before)
