"""The wheel is what users get: its names, what is inside, and that it works where there is no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")


def run(*command: str | Path, cwd: Path, seconds: int = 300) -> str:
    """Run a command outside the checkout and return what it printed; fail with it if it fails."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "VIRTUAL"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    [built] = folder.glob("*.whl")
    return built


def test_its_top_level_names_are_the_services_and_trellis(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" not in name}
    services = {path.name for path in (ROOT / "services").iterdir() if (path / "__init__.py").exists()}
    assert tops == services | {"trellis"}
    assert not tops & sys.stdlib_module_names


def test_the_wheel_has_every_file_that_is_read_at_run_time(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    sources = (ROOT / "services", ROOT / "shared")
    data = {str(path.relative_to(source)) for source in sources for path in source.rglob("*.toml")}
    assert data
    assert data <= inside


@pytest.mark.thorough
def test_the_services_need_only_the_locked_requirements(wheel: Path, tmp_path: Path) -> None:
    """Without the extra ``local`` and the tools of development the services start and say what is wrong."""
    venv = tmp_path / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, venv, cwd=tmp_path)
    python = venv / "bin" / "python"
    run(UV, "pip", "sync", "--quiet", "--python", python, "--require-hashes", ROOT / "requirements.lock", cwd=tmp_path)
    run(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", wheel, cwd=tmp_path)
    for script in ("trellis", "trellis-node-watcher", "trellis-provisioner"):
        command = [str(venv / "bin" / script), *(["run"] if script == "trellis" else [])]
        done = subprocess.run(
            command,
            env={"PATH": "/usr/bin", "TRELLIS_NATS_URL": "nonsense"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert "TRELLIS_NATS_URL" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
