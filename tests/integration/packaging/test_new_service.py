"""A service is added by the five edits of CONTRIBUTING.md; ``make generate`` does the rest, and the service runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

from support.cluster.grants import granted
from support.suite.service_process import free_port, get
from trellis.bus.accounts.accounts import ACCOUNTS_FILE, KEYS_FILE, TEMPLATE_FILE
from trellis.config.nats_credentials import Kind, identity_of, new_seed
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.cluster, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]
FILES = ROOT / "tests/data/new_service"
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SOURCES = ("services", "shared", "devtools", "tools")
REGISTRY, VALUES = Path("shared/trellis/services.py"), Path("deploy/helm/trellis/values.yaml")
CLUSTER = "trellis"
"""The one of ``deploy/nats``."""
READY_SECONDS = 60.0
PROGRAMS = """
import runpy, sys
for line in sys.stdin:
    sys.argv = line.split()
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            sys.exit(f"{line.strip()}: {end.code}")
"""
"""Runs programs in one process, where each imports what the former has imported."""


class Checkout:
    """A copy of the checkout, whose modules its programs import."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in (*SOURCES, "deploy", "docs"):
            shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("node_modules", "static"))
        for name in ("Makefile", "mkdocs.yml", "pyproject.toml"):
            shutil.copy2(ROOT / name, root / name)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TRELLIS_")}
        self.environment["PYTHONPATH"] = os.pathsep.join(str(root / folder) for folder in SOURCES)

    def run(self, *command: str | Path, given: str = "") -> str:
        """Run a command in it and return what it printed; fail with it if it fails."""
        done = subprocess.run(
            command, cwd=self.root, env=self.environment, input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def make(self, *targets: str) -> None:
        """Run the programs of ``tools`` that targets of the Makefile run."""
        programs = []
        for target in targets:
            recipe = self.text("Makefile").partition(f"\n{target}: ")[2].partition("\n\n")[0]
            found = re.findall(r"^\t@\$\(TOOL\)(\.[^#\n]+)", recipe, re.MULTILINE)
            assert found
            programs += [f"trellis_tools{item}\n" for item in found]
        self.run(sys.executable, "-c", PROGRAMS, given="".join(programs))

    def text(self, name: str) -> str:
        return (self.root / name).read_text()

    def insert(self, name: Path, before: str, text: str) -> None:
        """Put a text before another that the file has once."""
        former = (self.root / name).read_text()
        assert former.count(before) == 1
        (self.root / name).write_text(former.replace(before, text + before))


def block(name: str, indent: int) -> str:
    """Return a block of the page as it stands in its file."""
    found = re.search(rf"^   ```\w+ {name}\n(.*?)^   ```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return "".join(f"{' ' * indent}{line[3:]}\n" for line in found[1].splitlines())


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Return a copy of the checkout with the service ``greeter``."""
    made = Checkout(tmp_path / "checkout")
    shutil.copytree(FILES, made.root, dirs_exist_ok=True)
    made.insert(REGISTRY, "        Service(CONSOLE", block("registry", 8).rstrip() + ",\n")
    made.insert(VALUES, "  provisioner:\n", block("values", 2))
    return made


def edited(root: Path) -> set[str]:
    """Return the folders and files that the example brings or changes by hand."""
    brought = {path.relative_to(FILES) for path in FILES.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    names = {f"services/{path.parts[1]}" if path.parts[0] == "services" else str(path) for path in brought}
    return names | {str(name) for name in (REGISTRY, VALUES) if (ROOT / name).read_text() != (root / name).read_text()}


def bus_of(root: Path, directory: Path) -> Path:
    """Write a configuration of NATS with the generated users and a seed for greeter; return the configuration."""
    config = directory / ACCOUNTS_FILE
    shutil.copy2(root / "deploy/nats" / ACCOUNTS_FILE, config)
    keys = []
    for variable in re.findall(r"^(NKEY_\w+): ", (root / "deploy/nats" / TEMPLATE_FILE).read_text(), re.MULTILINE):
        seed = new_seed()
        (directory / f"{variable}.nk").write_text(f"{seed}\n")
        keys.append(f'{variable}: "{identity_of(seed, Kind.NKEY).public_key}"\n')
    (directory / KEYS_FILE).write_text("".join(keys))
    return config


@pytest.mark.thorough
def test_five_edits_add_a_service(checkout: Checkout, cluster: ClusterInfo, cluster_api: Api, tmp_path: Path) -> None:
    assert len(edited(checkout.root)) == 5
    checkout.make("generate", "verify")
    checkout.run(Path(sys.executable).with_name("lint-imports"), "--no-cache")

    project = tomllib.loads(checkout.text("pyproject.toml"))
    assert project["project"]["scripts"]["trellis-greeter"] == "greeter.__main__:main"
    run_help = checkout.text("docs/reference/commands.md").partition("\n## trellis run\n")[2].partition("\n## ")[0]
    assert re.search(r"of [a-z, -]*\bgreeter\b", run_help)
    assert "| `TRELLIS_GREETING` | `hello` |" in checkout.text("docs/reference/settings.md")
    assert "\n## greeter\n" in checkout.text("docs/reference/permissions.md")
    assert "| `greeter` |" in checkout.text("docs/reference/events.md")
    assert "| [greeter](greeter.md) | Greets each Node" in checkout.text("docs/services/index.md")
    assert "- services/greeter.md\n" in checkout.text("mkdocs.yml")
    assert "TRELLIS_EVENTS.greeter-nodes-trellis" in checkout.text("deploy/nats/accounts.conf")
    assert '"TRELLIS_GREETING"' in checkout.text("deploy/helm/trellis/values.schema.json")
    deployed = [*yaml.safe_load_all(checkout.text("deploy/base/services.yaml"))]
    assert [item["kind"] for item in deployed if item["metadata"]["name"] == "trellis-greeter"] == [
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Deployment",
    ]

    permissions = yaml.safe_load_all(checkout.text("deploy/rbac/greeter.yaml"))
    config = bus_of(checkout.root, tmp_path)
    with (
        NatsServer(tmp_path / "server", config=config) as server,
        granted(cluster, cluster_api, "trellis-greeter", tmp_path) as account,
    ):
        account.apply(permissions)
        port = free_port()
        settings = {
            "TRELLIS_KUBECONFIG": account.kubeconfig,
            "TRELLIS_NATS_URL": server.url,
            "TRELLIS_NATS_NKEY_FILE": tmp_path / "NKEY_GREETER_TRELLIS.nk",
            "TRELLIS_CLUSTER": CLUSTER,
            "TRELLIS_HEALTH_PORT": port,
        }
        starts_and_becomes_ready(checkout, {name: str(value) for name, value in settings.items()}, port)


def starts_and_becomes_ready(checkout: Checkout, settings: dict[str, str], port: int) -> None:
    """Run the service until it is ready; it ends on SIGTERM."""
    command = [sys.executable, "-m", "trellis_cli", "run", "greeter"]
    environment = checkout.environment | settings
    with subprocess.Popen(
        command, cwd=checkout.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        deadline = time.monotonic() + READY_SECONDS
        while (answer := get(port, "/readyz"))[0] != 200 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        process.terminate()
        log = process.communicate(timeout=READY_SECONDS)[0]
    assert answer[0] == 200, f"{answer}\n{log}"
    assert process.returncode == 0, log
