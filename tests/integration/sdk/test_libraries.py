"""The SDKs' own tests, where their languages have some, and their languages' own form."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from support.guests import built as guests
from trellis_dev.localcluster.building import LoggedBuild
from trellis_dev.localcluster.crates import lacking, write_lock
from trellis_dev.localcluster.gotoolchain import environment, go_program
from trellis_dev.localcluster.progress import Quiet

pytestmark = pytest.mark.timeout(900)


@pytest.mark.thorough
def test_go_test_passes_and_go_vet_reports_nothing() -> None:
    go = go_program(Quiet())
    for command in (["test", "./..."], ["vet", "./..."]):
        subprocess.run([go, *command], cwd=guests.SDK / "go", env=environment(go), check=True)
    formatter = go.with_name("gofmt")
    formatted = subprocess.run(
        [formatter, "-l", "."], cwd=guests.SDK / "go", capture_output=True, text=True, check=True
    )
    assert formatted.stdout == ""


@pytest.mark.thorough
def test_cargo_test_passes_with_any_installed_compiler(tmp_path: Path) -> None:
    if lacks := lacking(("cargo", "rustc", "rustfmt", "cc")):
        pytest.skip(f"NOT RUN: missing: {', '.join(lacks)}")
    sdk = tmp_path / "sdk"
    shutil.copytree(guests.SDK / "rust", sdk, ignore=shutil.ignore_patterns("target", "Cargo.lock"))
    around = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target"), "RUSTFLAGS": "-D warnings"}
    build = LoggedBuild(sdk, tmp_path / "log", threading.Event(), around, "")
    write_lock(sdk, build)
    shutil.rmtree(sdk / "probe")
    build.run(["cargo", "test", "--locked", "--lib"])
    build.run(["cargo", "check", "--locked", "--examples"])
    build.run(["cargo", "fmt", "--check"])
