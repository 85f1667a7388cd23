"""The viewer of a demo that keeps running: an account that may read all that pages show, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.access.permissions import GROUP
from trellis.read_model.live.live_model import all_parts
from trellis.read_model.live.watching import Place
from trellis_dev.demo import viewing
from trellis_dev.demo.report import Outcome, document_of, what_next
from trellis_dev.demo.viewing import ACCOUNT, Page, log_in, make_viewer, ready_page
from trellis_dev.localcluster import ClusterInfo, page
from trellis_dev.localcluster.errors import ToolError

HOME = "trellis-system"


def cluster() -> ClusterInfo:
    return ClusterInfo(
        name="demo",
        kubeconfig=Path("/kubeconfig"),
        nats_url="nats://127.0.0.1:1",
        jaeger_url=None,
        otlp_endpoint=None,
        bin_dir=Path("/some where"),
        pids={},
    )


def rules() -> list[dict[str, list[str]]]:
    [found] = [manifest["rules"] for res, manifest in make_viewer(HOME) if res.kind == "ClusterRole"]
    return list(found)


def test_the_account_may_see_all_that_pages_show() -> None:
    seen = {(group, name) for rule in rules() for group in rule["apiGroups"] for name in rule["resources"]}
    parts = all_parts(Place(HOME, "installers"))
    watched = {(part.resource.group, part.resource.plural) for part in (*parts.own, *parts.v2)}
    assert watched <= seen
    assert {(GROUP, name) for name in ("traces", "messages", "lattices")} <= seen


def test_the_account_changes_nothing_and_reads_no_secret() -> None:
    for rule in rules():
        assert set(rule["verbs"]) <= {"get", "list", "watch"}
        assert not {"secrets", "*"} & set(rule["resources"])


def test_the_permissions_are_those_of_that_account_alone() -> None:
    [binding] = [manifest for res, manifest in make_viewer(HOME) if res.kind == "ClusterRoleBinding"]
    assert binding["roleRef"]["name"] == ACCOUNT
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": HOME}]


def test_the_printed_command_creates_a_token_and_contains_none() -> None:
    page = Page("http://127.0.0.1:1", log_in(Path("/some where/kubectl"), Path("/kubeconfig"), HOME))
    words = "'/some where/kubectl' --kubeconfig /kubeconfig --namespace trellis-system create token demo-viewer"
    outcome = Outcome([], 1, 1.0, 1, "n", [], None, None, page)
    assert document_of(outcome)["console"] == {"url": page.url, "log_in": page.log_in}
    assert not [line for line in what_next(outcome) if page.url in line], "nothing of it is kept"
    kept = Outcome([], 1, 1.0, 1, "n", [], cluster(), None, page)
    text = "\n".join(what_next(kept))
    assert page.url in text
    assert words in text


async def test_a_page_that_cannot_be_built_is_reported_and_the_demo_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / page.SOURCES).mkdir(parents=True)
    monkeypatch.setattr(viewing, "CHECKOUT", tmp_path)

    def fail(*_: object) -> Path:
        raise ToolError("node: not found")

    monkeypatch.setattr(page, "build_page", fail)
    await ready_page()
    assert "node: not found" in capsys.readouterr().err


async def test_an_installed_console_has_its_page_already(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(viewing, "CHECKOUT", tmp_path)
    monkeypatch.setattr(page, "build_page", lambda *_: pytest.fail("there is nothing to build it from"))
    await ready_page()
