"""`trellis shims`: the catalogue, the Shim of a release, newer releases, checked files, and what is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_installer.fetch.web import Web
from support.suite.naming import lacking
from trellis import names
from trellis.installer_api.spec import WantedShim
from trellis.kube.errors import NotFound
from trellis.kube.resources import ALL, SHIMS
from trellis.provisioning.shims import view_shim, wanted_shim_for
from trellis_cli.common.errors import CommandError
from trellis_cli.common.output import Format
from trellis_cli.shims import command
from trellis_cli.shims.files import check_files
from trellis_cli.shims.model import (
    CatalogueError,
    File,
    Release,
    Row,
    find_release,
    make_fetch_strategy,
    make_shim,
    parse_catalogue,
    rows_of,
)
from trellis_cli.shims.write import Outcome, ServedTimings, write_default, write_release
from trellis_dev.fakes.fake import FakeKube
from unit.node_installer.servers import Answer, certificates, serving
from unit.node_installer.world import a_shim as a_program
from unit.node_installer.world import sha256

Manifest = dict[str, Any]
CATALOGUE = command.read_catalogue()
ALL_RELEASES = [release for runtime in CATALOGUE for release in runtime.releases]
SMALL = parse_catalogue(
    f"""
[spin]
summary = "Spin applications"
page = "https://example.com/spin"
license = "Apache-2.0"
handler = "spin"

[[spin.releases]]
version = "0.10.0"
checksum = "https://example.com/sums"
files.amd64 = {{ location = "https://example.com/spin-0.10.0", sha256 = "{"ab" * 32}" }}

[[spin.releases]]
version = "0.9.1"
checksum = "https://example.com/sums"
files.amd64 = {{ location = "https://example.com/spin-0.9.1", sha256 = "{"cd" * 32}" }}
"""
)
NEW, OLD = SMALL[0].releases


def stored(manifest: Manifest, **metadata: Any) -> Manifest:
    return manifest | {"metadata": {"uid": "u", "resourceVersion": "1", **manifest["metadata"], **metadata}}


def installing(release: Release, name: str = "spin", **metadata: Any) -> Manifest:
    return stored(make_shim(release, name, {"wasm": "true"}, "10%"), **metadata)


def listed(*manifests: Manifest) -> list[Row]:
    return rows_of(SMALL, [(view_shim(manifest), manifest) for manifest in manifests])


# --- the catalogue of the package ---


@pytest.mark.parametrize("release", ALL_RELEASES, ids=lambda item: f"{item.runtime}@{item.version}")
def test_each_release_installs_on_both_architectures(release: Release) -> None:
    shim = view_shim(installing(release, release.runtime))
    assert not shim.invalid
    for arch in ("amd64", "arm64"):
        wanted = wanted_shim_for(shim, arch, require_checksum=True)
        assert isinstance(wanted, WantedShim)
        [source] = wanted.sources
        assert source.location.startswith("https://github.com/")
        assert release.version in source.location


@pytest.mark.parametrize("release", ALL_RELEASES, ids=lambda item: f"{item.runtime}@{item.version}")
def test_each_release_names_the_source_of_its_checksums_at_a_commit(release: Release) -> None:
    commit = release.checksum.partition("/blob/")[2].partition("/")[0]
    assert len(commit) == 40


def test_no_two_files_have_the_same_checksum() -> None:
    sums = [file.sha256 for release in ALL_RELEASES for file in release.files]
    assert len(sums) == len(set(sums)), "a Shim would have two versions"


def test_releases_are_in_order_the_newest_first() -> None:
    for runtime in CATALOGUE:
        versions = [tuple(map(int, release.version.split("."))) for release in runtime.releases]
        assert versions == sorted(versions, reverse=True)


def test_the_shim_of_the_examples_is_the_newest_release() -> None:
    path = Path(__file__).parents[3] / "deploy/examples/shim/shim.yaml"
    manifest = stored(yaml.safe_load(path.read_text(encoding="utf-8")))
    [row] = [row for row in rows_of(CATALOGUE, [(view_shim(manifest), manifest)]) if row.shim]
    assert (row.runtime, row.outdated) == ("spin", False)


# --- a release and its Shim ---


@pytest.mark.parametrize(
    ("wanted", "release"), [("spin", NEW), ("spin@0.9.1", OLD), ("spin@v0.9.1", OLD), ("spin@0.10.0", NEW)]
)
def test_a_release_is_found_by_name_and_version(wanted: str, release: Release) -> None:
    assert find_release(SMALL, wanted) == release


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("slight", ["slight", "spin"]),
        ("spin@1.0.0", ["1.0.0", "0.10.0", "0.9.1"]),
        ("Spin", ["Spin"]),
        ("spin@", ["spin", "NAME"]),
    ],
)
def test_a_release_that_is_not_in_the_catalogue_is_refused_with_the_known_ones(wanted: str, words: list[str]) -> None:
    with pytest.raises(CatalogueError) as error:
        find_release(SMALL, wanted)
    assert lacking(str(error.value), *words) == []


def test_a_new_shim_selects_its_nodes_and_limits_its_rollout() -> None:
    shim = view_shim(installing(NEW, "mine"))
    assert (shim.name, shim.handler, shim.runtime_class, shim.selector) == ("mine", "spin", "mine", (("wasm", "true"),))
    assert str(shim.max_update) == "10%"
    assert view_shim(stored(make_shim(NEW, "mine", {}, 3))).selector is None


# --- newer releases ---


def test_a_shim_of_an_older_release_is_outdated() -> None:
    assert listed(installing(OLD)) == [Row("spin", "0.10.0", "spin", "0.9.1")]
    assert listed(installing(OLD))[0].outdated
    assert not listed(installing(NEW))[0].outdated


def test_versions_are_compared_as_numbers() -> None:
    assert Row("spin", "0.10.0", "spin", "0.9.1").outdated
    assert not Row("spin", "0.9.1", "spin", "0.10.0").outdated


def test_a_shim_from_a_mirror_is_known_by_its_checksum() -> None:
    manifest = installing(OLD)
    manifest["spec"]["fetchStrategy"] = {"anonHttp": {"location": "https://mirror/x", "sha256": OLD.files[0].sha256}}
    assert listed(manifest)[0].version == "0.9.1"


def test_a_shim_that_the_catalogue_does_not_know_has_the_version_of_its_label() -> None:
    manifest = installing(OLD, "own", labels={"app.kubernetes.io/version": "3.1"})
    manifest["spec"]["fetchStrategy"]["platforms"][0]["sha256"] = "ef" * 32
    assert listed(manifest) == [Row("", "", "own", "3.1"), Row("spin", "0.10.0")]
    assert not listed(manifest)[0].outdated


def test_a_runtime_without_a_shim_is_listed_after_the_shims() -> None:
    assert listed() == [Row("spin", "0.10.0")]


# --- the files of a release ---


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


PROGRAMS = {"/amd64": a_program(arch="amd64"), "/arm64": a_program(arch="arm64")}


@contextmanager
def published(tls: Path) -> Iterator[Release]:
    with serving(lambda asked: Answer(body=PROGRAMS[asked.path]), tls) as server:
        files = [File(path[1:], f"{server.url}{path}", sha256(content)) for path, content in PROGRAMS.items()]
        yield replace(NEW, files=tuple(files))


def test_files_with_their_checksums_are_accepted(tls: Path) -> None:
    with published(tls) as release:
        check_files(release, "spin", Web(ca_file=tls / "ca.pem"))


@pytest.mark.parametrize("wrong", ["checksum", "architecture"])
def test_one_wrong_file_is_enough_to_refuse_a_release(tls: Path, wrong: str) -> None:
    with published(tls) as release:
        first, last = release.files
        files = {
            "checksum": (first, replace(last, sha256="ab" * 32)),
            "architecture": (first, replace(first, arch="arm64")),
        }[wrong]
        with pytest.raises(CommandError):
            check_files(replace(release, files=files), "spin", Web(ca_file=tls / "ca.pem"))


def test_plain_http_is_refused() -> None:
    with pytest.raises(CommandError):
        check_files(replace(NEW, files=(File("amd64", "http://127.0.0.1:1/x", "ab" * 32),)), "spin", Web())


# --- writing ---


async def test_a_shim_is_created_once_and_then_unchanged() -> None:
    kube = FakeKube()
    wanted = make_shim(NEW, "spin", {"wasm": "true"}, "10%")
    assert (await write_release(kube, wanted, dry_run=False)).outcome is Outcome.CREATED
    assert (await write_release(kube, wanted, dry_run=False)).outcome is Outcome.UNCHANGED
    assert len(kube.writes) == 1


async def test_of_an_existing_shim_only_the_fetch_strategy_changes() -> None:
    kube = FakeKube()
    former = make_shim(OLD, "spin", {"pool": "wasm"}, 1)
    former["spec"] |= {"paused": True, "fetchStrategy": {"anonHttp": {"location": "https://example.com/x"}}}
    kube.put(SHIMS, former)
    written = await write_release(kube, make_shim(NEW, "spin", {"wasm": "true"}, "10%"), dry_run=False)
    assert written.outcome is Outcome.CONFIGURED
    [now] = kube.objects(SHIMS)
    assert now["spec"] == former["spec"] | {"fetchStrategy": make_fetch_strategy(NEW)}


@pytest.mark.parametrize(
    ("key", "option", "selector", "max_update"),
    [
        ("nodeSelector", "--node-selector", {"pool": "edge"}, 1),
        ("rolloutStrategy", "--max-update", {"pool": "wasm"}, "50%"),
    ],
)
async def test_an_option_that_would_have_no_effect_on_an_existing_shim_is_refused(
    key: str, option: str, selector: dict[str, str], max_update: int | str
) -> None:
    kube = FakeKube()
    former = make_shim(OLD, "spin", {"pool": "wasm"}, 1)
    former["spec"]["rolloutStrategy"]["rolling"]["drain"] = True
    kube.put(SHIMS, former)
    requested = {key: option}
    with pytest.raises(CommandError) as error:
        await write_release(kube, make_shim(NEW, "spin", selector, max_update), dry_run=False, requested=requested)
    assert lacking(str(error.value), key, option) == []
    assert kube.writes == []
    equal = make_shim(NEW, "spin", {"pool": "wasm"}, 1)
    assert (await write_release(kube, equal, dry_run=False, requested=requested)).outcome is Outcome.CONFIGURED


async def test_a_dry_run_stores_nothing() -> None:
    kube = FakeKube()
    wanted = make_shim(NEW, "spin", {}, 1)
    assert (await write_release(kube, wanted, dry_run=True)).outcome is Outcome.CREATED
    kube.put(SHIMS, make_shim(OLD, "spin", {}, 1))
    assert (await write_release(kube, wanted, dry_run=True)).outcome is Outcome.CONFIGURED
    [now] = kube.objects(SHIMS)
    assert now["spec"]["fetchStrategy"] == make_fetch_strategy(OLD)


async def test_a_shim_with_another_handler_is_refused() -> None:
    kube = FakeKube()
    kube.put(SHIMS, make_shim(replace(OLD, handler="other"), "spin", {}, 1))
    with pytest.raises(CommandError) as error:
        await write_release(kube, make_shim(NEW, "spin", {}, 1), dry_run=False)
    assert lacking(str(error.value), "other", "--name") == []
    assert kube.writes == []


async def test_a_shim_that_is_being_deleted_is_not_changed() -> None:
    kube = FakeKube()
    former = make_shim(OLD, "spin", {}, 1)
    former["metadata"]["finalizers"] = [names.FINALIZER]
    kube.put(SHIMS, former)
    kube.remove(SHIMS, "spin")
    with pytest.raises(CommandError):
        await write_release(kube, make_shim(NEW, "spin", {}, 1), dry_run=False)
    assert kube.writes == []


async def test_the_default_shim_waits_until_shims_are_served() -> None:
    kube = FakeKube(resources=tuple(item for item in ALL if item is not SHIMS))
    wanted = make_shim(NEW, "wasi", {}, 1)
    with pytest.raises(NotFound):
        await write_default(kube, wanted, ServedTimings(timeout=0.02, poll=0.01))
    assert len(kube.writes) > 1
    kube.define(SHIMS)
    assert (await write_default(kube, wanted, ServedTimings(timeout=0.02, poll=0.01))).outcome is Outcome.CREATED


async def test_the_default_shim_does_not_take_a_shim_of_a_user() -> None:
    kube = FakeKube()
    kube.put(SHIMS, make_shim(OLD, "wasi", {}, 1))
    with pytest.raises(CommandError) as error:
        await write_default(kube, make_shim(NEW, "wasi", {}, 1))
    assert "defaultShim.enabled=false" in str(error.value)
    assert kube.writes == []


async def test_the_default_shim_follows_the_chart_and_keeps_what_a_user_set() -> None:
    kube = FakeKube()
    former = make_shim(OLD, "wasi", {}, 1)
    former["metadata"]["managedFields"] = [{"manager": names.FIELD_MANAGER_CHART, "operation": "Apply"}]
    former["spec"]["paused"] = True
    kube.put(SHIMS, former)
    assert (await write_default(kube, make_shim(NEW, "wasi", {}, 1))).outcome is Outcome.CONFIGURED
    [now] = kube.objects(SHIMS)
    assert (now["spec"]["fetchStrategy"], now["spec"]["paused"]) == (make_fetch_strategy(NEW), True)


# --- the command ---


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"release": "slight"}, "slight"),
        ({"node_selector": ["wasm"]}, "--node-selector"),
        ({"max_update": "0"}, "--max-update"),
        ({"max_update": "many"}, "--max-update"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_fetched(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(command, "check_files", lambda *_: pytest.fail("it was fetched"))
    with pytest.raises(SystemExit) as ended:
        command.add(**{"release": "spin", **changed})
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_client_side_dry_run_prints_the_shim_and_needs_no_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "check_files", lambda *_: None)
    command.add("spin@0.24.0", "mine", ["pool=wasm"], "3", command.DryRun.CLIENT, None, None, Format.YAML)
    shim = yaml.safe_load(capsys.readouterr().out)
    assert shim == make_shim(find_release(CATALOGUE, "spin@0.24.0"), "mine", {"pool": "wasm"}, 3)
    command.add("spin", None, None, "10%", command.DryRun.CLIENT, None, None, Format.TABLE)
    assert lacking(capsys.readouterr().out, "shim.runtime.spinkube.dev/spin", Outcome.CREATED, "dry") == []


def test_the_catalogue_is_listed_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    command.list_shims(catalogue=True, output=Format.JSON)
    found = json.loads(capsys.readouterr().out)["runtimes"]
    assert {(item["name"], two["version"]) for item in found for two in item["releases"]} == {
        (release.runtime, release.version) for release in ALL_RELEASES
    }


@pytest.mark.parametrize("content", ["kind: Node", "[", "kind: Shim", "- 1"])
def test_a_file_without_a_shim_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    file = tmp_path / "shim.yaml"
    file.write_text(content)
    with pytest.raises(SystemExit) as ended:
        command.apply(file)
    assert ended.value.code == 1
    assert str(file) in capsys.readouterr().err
