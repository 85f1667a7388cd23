"""`trellis rollout status|pause|resume|undo`, run as a user runs them, beside the services."""

from __future__ import annotations

import asyncio
import http
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.nodes.fleet import Fleet, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import SHIMS, Shim
from trellis import names
from trellis.read_model.tables.rollout import Phase

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

Done = subprocess.CompletedProcess[str]
FIRST, SECOND = "ab" * 32, "cd" * 32


@dataclass(frozen=True)
class Rollout:
    """The command line, pointed at one test's cluster and namespaces."""

    fleet: Fleet
    shim: Shim

    def begin(self, *arguments: str, kubeconfig: Path | None = None) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRELLIS_", "KUBE"))}
        environment |= {
            "TRELLIS_KUBECONFIG": str(kubeconfig or self.fleet.info.kubeconfig),
            "TRELLIS_NAMESPACE": self.fleet.system,
            "TRELLIS_CLAIM_NAMESPACE": self.fleet.system,
            "TRELLIS_INSTALLER_NAMESPACE": self.fleet.installers,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "trellis_cli", "rollout", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, kubeconfig: Path | None = None) -> Done:
        with self.begin(*arguments, kubeconfig=kubeconfig) as process:
            try:
                out, err = process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    async def __call__(self, verb: str, *arguments: str) -> Done:
        """Run it while the services go on."""
        return await asyncio.to_thread(self.run, verb, self.shim.name, *arguments)

    async def ok(self, verb: str, *arguments: str) -> str:
        done = await self(verb, *arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    async def complete(self) -> dict[str, Any]:
        """Watch to the end, and return the last document."""
        lines = (await self.ok("status", "--watch", "--timeout", "100s", "-o", "json")).splitlines()
        last: dict[str, Any] = json.loads(lines[-1])
        assert last["phase"] == "Complete", last
        return last

    async def deleted(self) -> None:
        self.shim.delete()
        await eventually(lambda: self.shim.found() is None, "the Shim is gone", seconds=60)

    def found(self) -> dict[str, Any]:
        found: dict[str, Any] | None = self.shim.found()
        assert found is not None
        return found

    def checksum(self) -> str:
        return str(self.found()["spec"]["fetchStrategy"]["anonHttp"]["sha256"])

    def revisions(self) -> dict[int, str]:
        """Return the checksums of this Shim's kept versions by revision; other tests left Shims in the cluster."""
        path = f"/apis/apps/v1/namespaces/{self.fleet.system}/controllerrevisions"
        _, found = self.fleet.api.call("GET", path)
        return {
            item["revision"]: item["data"]["spec"]["fetchStrategy"]["anonHttp"]["sha256"]
            for item in found.get("items", [])
            if item["metadata"]["ownerReferences"][0]["name"] == self.shim.name
        }


@pytest.fixture
def rollout(fleet: Fleet, shim: Shim) -> Rollout:
    return Rollout(fleet, shim)


@pytest.mark.timeout(600)  # nine commands, each a process of its own, which a loaded machine starts slowly
@pytest.mark.thorough
async def test_a_version_is_followed_rolled_back_and_restored(rollout: Rollout) -> None:
    nodes = rollout.shim.add_nodes(2)
    async with rollout.fleet.services(), kubelets(rollout.fleet):
        rollout.shim.apply(sha256=FIRST)
        first = await rollout.complete()
        assert first["counts"]["Updated"] == first["desired"] == 2
        assert {node["name"] for node in first["nodes"]} == set(nodes)
        await eventually(lambda: rollout.revisions() == {1: FIRST}, "revision 1")
        refused = await rollout("undo")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert rollout.shim.name in refused.stderr
        assert rollout.checksum() == FIRST, "nothing was changed"

        rollout.shim.apply(sha256=SECOND, max_update=2, removalPolicy="Force")
        await eventually(lambda: rollout.revisions() == {1: FIRST, 2: SECOND}, "revision 2")
        assert (await rollout.complete())["revision"] == 2

        undone = json.loads(await rollout.ok("undo", "-o", "json"))
        assert undone["changed"]
        assert re.search(r"\brevision 1\b", undone["message"])
        assert rollout.checksum() == FIRST
        await eventually(lambda: rollout.revisions() == {2: SECOND, 3: FIRST}, "the first one again, as revision 3")
        last = await rollout.complete()
        assert (last["revision"], [revision["revision"] for revision in last["revisions"]]) == (3, [2, 3])
        assert rollout.found()["spec"]["removalPolicy"] == "Force"  # how is not undone

        missing = await rollout("undo", "--to-revision", "9")
        assert missing.returncode == 1
        for named in ("revision 9", ": 2, 3"):
            assert named in missing.stderr
        assert not json.loads(await rollout.ok("undo", "--to-revision", "3", "-o", "json"))["changed"]
        await rollout.ok("undo", "--to-revision", "2")
        assert rollout.checksum() == SECOND
        await rollout.complete()
        await rollout.deleted()


@pytest.mark.thorough
async def test_a_paused_rollout_begins_nothing_reports_it_and_goes_on(rollout: Rollout) -> None:
    [node] = rollout.shim.add_nodes(1)
    rollout.shim.apply(nodeSelector={"test": "none yet"})
    async with rollout.fleet.services(), kubelets(rollout.fleet):
        assert (await rollout.complete())["desired"] == 0
        assert f"{rollout.shim.name} paused" in await rollout.ok("pause")
        rollout.fleet.api.call(
            "PATCH", f"{SHIMS}/{rollout.shim.name}", {"spec": {"nodeSelector": {"test": rollout.fleet.id}}}
        )
        watched = await rollout("status", "--watch", "--timeout", "100s")
        assert watched.returncode == 1
        assert "1 blocked" in watched.stdout
        shown = await rollout.ok("status")
        assert f"{node}  Blocked" in shown
        assert f"trellis rollout resume {rollout.shim.name}" in shown
        assert not rollout.fleet.jobs()
        assert json.loads(await rollout.ok("resume", "-o", "json"))["changed"]
        assert rollout.found()["spec"]["paused"] is False
        assert (await rollout.complete())["counts"]["Updated"] == 1
        assert not json.loads(await rollout.ok("resume", "-o", "json"))["changed"]
        await rollout.deleted()


async def test_a_halted_rollout_states_the_reason_and_continues_on_a_users_command(rollout: Rollout) -> None:
    flaky, *_ = rollout.shim.add_nodes(2, "flaky")
    async with rollout.fleet.services(retry_min=300, retry_max=300), kubelets(rollout.fleet):
        rolling = {"type": "rolling", "rolling": {"maxUpdate": 1, "pauseOnFailures": 1}}
        rollout.shim.apply(rolloutStrategy=rolling)
        watched = await rollout("status", "--watch", "--timeout", "100s")
        assert watched.returncode == 1
        assert f"{flaky} failed: " in watched.stdout
        assert "Halted: 0 of 3 nodes updated, 1 failed, 2 blocked" in watched.stdout
        assert f"trellis rollout resume {rollout.shim.name}" in watched.stdout
        assert json.loads(await rollout.ok("resume", "-o", "json"))["changed"]
        assert names.ANNOTATION_ACKNOWLEDGED in rollout.found()["metadata"]["annotations"]
        assert (await rollout.complete())["counts"]["Updated"] == 3
        rollout.fleet.delete(flaky)  # its removal would fail once too
        await rollout.deleted()


@pytest.mark.thorough
async def test_watching_succeeds_when_a_deleted_shim_is_removed(rollout: Rollout) -> None:
    rollout.shim.add_nodes(1)
    async with rollout.fleet.services(), kubelets(rollout.fleet):
        rollout.shim.apply()
        await rollout.complete()
        path = f"{SHIMS}/{rollout.shim.name}"
        hold = {"metadata": {"finalizers": [names.FINALIZER, "example.com/hold"]}}
        assert rollout.fleet.api.call("PATCH", path, hold)[0] == http.HTTPStatus.OK
        rollout.shim.delete()
        late = await rollout("status", "--watch", "--timeout", "1s")
        assert late.returncode == 1
        for named in (rollout.shim.name, Phase.REMOVING, " 1 s"):
            assert named in late.stderr
        done = await rollout("pause")
        assert (done.returncode, done.stdout) == (1, "")
        assert f"trellis rollout status {rollout.shim.name}" in done.stderr
        with rollout.begin("status", rollout.shim.name, "--watch", "--timeout", "100s") as watch:
            assert watch.stdout is not None
            assert Phase.REMOVING in await asyncio.to_thread(watch.stdout.readline)
            rollout.fleet.api.call("PATCH", path, {"metadata": {"finalizers": None}})
            out, err = await asyncio.to_thread(watch.communicate)
        assert (watch.returncode, err) == (0, "")
        last = out.splitlines()[-1]
        assert rollout.shim.name in last
        assert Phase.REMOVING not in last


@pytest.mark.parametrize("verb", ["status", "pause", "resume", "undo"])
def test_a_shim_that_does_not_exist_is_one_line_that_names_those_that_do(rollout: Rollout, verb: str) -> None:
    rollout.shim.apply(paused=True)
    try:
        done = rollout.run(verb, "nothing-here")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert 'Shim "nothing-here"' in done.stderr
        assert rollout.shim.name in done.stderr
    finally:
        rollout.shim.delete()


def test_a_cluster_that_does_not_answer_is_one_line(rollout: Rollout, tmp_path: Path) -> None:
    text = Path(rollout.fleet.info.kubeconfig).read_text(encoding="utf-8")
    lines = ["    server: https://127.0.0.1:1" if "server:" in line else line for line in text.splitlines()]
    config = tmp_path / "kubeconfig"
    config.write_text("\n".join(lines), encoding="utf-8")
    for arguments in (("status", "spin"), ("status", "spin", "--watch"), ("pause", "spin")):
        done = rollout.run(*arguments, kubeconfig=config)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done
        assert done.stderr.startswith("Error: https://127.0.0.1:1 ")


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        (("status", "spin", "--timeout", "1m"), "--watch"),
        (("status", "spin", "--watch", "--timeout", "soon"), "'soon'"),
        (("undo", "spin", "--to-revision", "0"), "--to-revision"),
    ],
)
def test_an_invalid_flag_exits_with_2_and_names_the_accepted_values(
    rollout: Rollout, arguments: tuple[str, ...], needs: str
) -> None:
    done = rollout.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert needs in done.stderr
