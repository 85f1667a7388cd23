"""The input and the result of an installer, and the contents of its image."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.installer_api.result import (
    TERMINATION_MESSAGE_BYTES,
    EndedProcess,
    FailureReason,
    InstallResult,
    Outcome,
    ShimResult,
    parse_result,
)
from trellis.installer_api.spec import InstallSpec, SpecError, parse_spec, removal_of, shim_owner

ROOT = Path(__file__).parents[3]
SHIM: dict[str, Any] = {
    "name": "spin-v2",
    "handler": "spin",
    "digest": "abc",
    "owner": "shim/spin-v2",
    "sources": [
        {
            "location": "https://x/a",
            "arch": "x86_64",
            "os": "linux",
            "sha256": "A" * 64,
            "member": "bin/s",
            "pullSecret": "a",
        }
    ],
    "containerdRuntimeOptions": {"SystemdCgroup": "true"},
}


def spec(**fields: Any) -> InstallSpec:
    return parse_spec(json.dumps({"shims": [{**SHIM, **fields}]}))


def source(**fields: Any) -> InstallSpec:
    return spec(sources=[{**SHIM["sources"][0], **fields}])


def test_a_target_is_restored_from_its_json() -> None:
    wanted = spec()
    assert parse_spec(wanted.to_json()) == wanted
    assert wanted.shims[0].sources[0].arch == "amd64"
    assert wanted.shims[0].sources[0].sha256 == "a" * 64
    assert wanted.shims[0].sources[0].pull_secret == "a"
    assert wanted.require_checksum
    assert not wanted.allow_http


def test_unknown_fields_are_ignored() -> None:
    assert spec(future={"x": 1}) == spec()


def test_without_a_digest_a_target_is_identified_by_its_content() -> None:
    item, two = spec(digest=""), spec(digest="", containerdRuntimeOptions={})
    assert item.shims[0].digest
    assert item.shims[0].digest != two.shims[0].digest
    assert item == spec(digest="")


def test_a_source_of_its_own_comes_before_one_for_any() -> None:
    sources = [{"location": "https://any"}, {"location": "https://mine", "arch": "aarch64"}]
    shim = spec(sources=sources).shims[0]
    found = [shim.source_for(arch) for arch in ("arm64", "amd64")]
    assert [item.location if item else None for item in found] == ["https://mine", "https://any"]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: parse_spec("{"), "not JSON"),
        (lambda: parse_spec("[]"), "shims"),
        (lambda: parse_spec('{"shims": [1]}'), r"shims\[0\]"),
        (lambda: spec(name="../x"), "name"),
        (lambda: spec(name=""), "name"),
        (lambda: spec(handler="a/b"), "handler"),
        (lambda: spec(handler="a.b"), "handler"),
        (lambda: spec(handler="UPPER"), "handler"),
        (lambda: spec(handler="runc"), "runtime"),
        (lambda: spec(handler='x"]\n[y'), "handler"),
        (lambda: spec(handler="x" * 64), "handler"),
        (lambda: spec(digest="a b"), "digest"),
        (lambda: spec(owner="a b"), "owner"),
        (lambda: spec(containerdRuntimeOptions={"a b": "c"}), "Options"),
        (lambda: spec(containerdRuntimeOptions={"a": True}), "Options"),
        (lambda: spec(sources={}), "sources"),
        (lambda: source(arch="riscv64"), "arch"),
        (lambda: source(os="windows"), "os"),
        (lambda: source(location="file:///etc/shadow"), "location"),
        (lambda: source(location="/assets/../etc/shadow"), "location"),
        (lambda: source(location=None), "location"),
        (lambda: source(sha256="abc"), "sha256"),
        (lambda: source(member=""), "member"),
        (lambda: source(pullSecret="../etc"), "pullSecret"),
        (lambda: source(pullSecret=".."), "pullSecret"),
        (lambda: source(pullSecret=""), "pullSecret"),
        (lambda: parse_spec(json.dumps({"shims": [SHIM, {**SHIM, "name": "other"}]})), "two shims"),
        (lambda: parse_spec('{"shims": [], "allowHttp": "yes"}'), "allowHttp"),
    ],
)
def test_an_invalid_target_is_refused_with_its_field(make: Any, field: str) -> None:
    with pytest.raises(SpecError, match=field):
        make()


@given(st.text())
def test_any_text_is_a_target_or_an_error(text: str) -> None:
    try:
        parse_spec(text)
    except SpecError:
        return


RESULT = InstallResult(
    "install",
    Outcome.ROLLED_BACK,
    FailureReason.RUNTIME_START_FAILED,
    "said",
    "k3s",
    restarted=True,
    shims=(ShimResult("spin", "d", "s", "1", verified=True),),
    ended=(EndedProcess(12, "containerd-shim", killed=True), EndedProcess(13)),
)


def test_a_result_comes_back_from_its_line() -> None:
    assert parse_result(RESULT.to_line()) == RESULT


@pytest.mark.thorough
@given(st.text(max_size=9000), st.integers(0, 80), st.text(max_size=300))
def test_a_result_always_fits_and_keeps_its_reason(message: str, count: int, problem: str) -> None:
    shims = tuple(ShimResult(f"h{number}", "d" * 64, "s" * 64, problem=problem) for number in range(count))
    ended = tuple(EndedProcess(number, "containerd-shim") for number in range(1, count * count))
    result = InstallResult("install", Outcome.FAILED, FailureReason.NO_SPACE, message, shims=shims, ended=ended)
    line = result.to_line()
    assert len(line.encode("utf-8", "surrogatepass")) <= TERMINATION_MESSAGE_BYTES
    assert "\n" not in line
    back = parse_result(line)
    assert back is not None
    assert back.reason is FailureReason.NO_SPACE


@pytest.mark.parametrize("line", ["", "done", "{}", "[]", "null", '{"operation": "x", "outcome": "y"}'])
def test_a_line_of_another_program_is_no_result(line: str) -> None:
    assert parse_result(line) is None


def test_the_images_packages_are_the_projects_own() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["dependency-groups"]["installer"]) <= set(project["project"]["dependencies"])
    names = {item.split(">")[0].split(";")[0].strip() for item in project["dependency-groups"]["installer"]}
    lock = (ROOT / "requirements-installer.lock").read_text()
    locked = {line.split("==")[0] for line in lock.splitlines() if "==" in line}
    assert {name.replace(".", "-") for name in names} == locked


def test_an_ordinary_run_imports_nothing_heavy() -> None:
    script = (
        "import sys, node_installer.command_line; "
        "print(*[n for n in ('tomlkit','backports','pydantic','opentelemetry','structlog','aiohttp','asyncio') "
        "if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def removal(**fields: Any) -> InstallSpec:
    return parse_spec(json.dumps({"shims": [fields]}), removal=True)


def test_a_shim_to_remove_is_identified_by_name_and_owner_alone() -> None:
    assert removal(name="spin", owner="shim/spin").shims == (removal_of("spin", shim_owner("spin")),)
    assert removal(name="spin", owner="shim/spin", handler="wasm").shims[0].handler == "wasm"
    assert removal(name="spin").shims[0].owner == "trellis"


def test_a_removal_comes_back_from_its_json() -> None:
    spec = InstallSpec((removal_of("spin", "shim/spin"), removal_of("wws", "shim/wws", "wws")))
    assert parse_spec(spec.to_json(), removal=True) == spec


@pytest.mark.parametrize("wrong", [{"sources": [{"location": "ftp://x"}]}, {"digest": "a b"}, {"sources": 1}])
def test_sources_and_versions_do_not_keep_a_shim_there(wrong: dict[str, Any]) -> None:
    assert removal(name="spin", owner="shim/spin", **wrong).shims == (removal_of("spin", "shim/spin"),)
    with pytest.raises(SpecError):
        spec(**wrong)


@pytest.mark.parametrize("wrong", [{"name": "../x"}, {"handler": "a/b"}, {"handler": "runc"}, {"owner": "a b"}])
def test_a_removal_that_could_reach_further_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        removal(**{"name": "spin", "owner": "shim/spin", **wrong})
