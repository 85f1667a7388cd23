"""``make test-e2e``: the parts that need more than ``make test`` has, each run or named as NOT RUN with the reason.

Exit status: 0 all parts passed, 1 a part failed, 3 nothing failed but a part was not run. Never 0 with a part left out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trellis.localcluster import lattice_servers, requirements, wasmshim

sys.path.append(str(Path(__file__).resolve().parents[1]))
from support import secrets_client

NOT_RUN = 3


@dataclass(frozen=True)
class Part:
    """A part of the suite: its name, its tests, and why it cannot run here (None if it can).

    ``processes``: how many share its tests, each with a control plane of its own.
    """

    name: str
    tests: Path
    missing: Callable[[], str | None]
    quick: bool = False
    processes: int = 1


def _no_wasm_nodes() -> str | None:
    return requirements.missing() or wasmshim.missing()


def _no_installation() -> str | None:
    return _no_wasm_nodes() or _no_secrets()


def _no_secrets() -> str | None:
    return lattice_servers.missing() or secrets_client.missing()


def _no_git() -> str | None:
    return None if shutil.which("git") else "git is missing, which serves the repository"


def _no_redis() -> str | None:
    missing = [name for name in ("apt-get", "dpkg") if not shutil.which(name)]
    return _no_git() or (f"{missing[0]} is missing: redis is one of Debian's packages" if missing else None)


HERE = Path(__file__).parent
REAL = HERE / "real_node"
LATTICE = HERE / "lattice"
OPERATORS = HERE / "operators"
PARTS = (
    Part("a Shim on a real node, and off again", REAL / "test_rollout.py", _no_wasm_nodes, quick=True),
    Part("Shims on three real nodes", REAL / "test_rollout_three.py", _no_wasm_nodes),
    Part("pods and the removal of their Shim", REAL / "test_removal.py", _no_wasm_nodes),
    Part("Shims that only a pod finds out, and containerd 1.6", REAL / "test_canary.py", _no_wasm_nodes),
    Part("one real node: installers and Wasm", REAL / "test_one_node.py", _no_wasm_nodes, quick=True),
    Part("the installer on real nodes", REAL / "test_installer.py", _no_wasm_nodes),
    Part("an image built from a Dockerfile, on a real node", REAL / "test_images.py", _no_wasm_nodes),
    Part("what our images hold", REAL / "test_image_contents.py", requirements.missing),
    Part("the services' image, as the chart runs it", REAL / "test_services_image.py", requirements.missing),
    Part("what proofs of installers rest on", REAL / "test_proof_tools.py", _no_wasm_nodes),
    Part("the installer, fetching by https", REAL / "test_installer_https.py", _no_wasm_nodes),
    Part("the installer, from a private registry behind a proxy", REAL / "test_installer_private.py", _no_wasm_nodes),
    Part("the installer's spans, in a Jaeger", REAL / "test_installer_traces.py", _no_wasm_nodes),
    Part("shims that work and shims that do not", REAL / "test_shims.py", _no_wasm_nodes),
    Part("groups of hosts on a real node", REAL / "test_host_groups.py", requirements.missing),
    Part("an application is reached on a real node", REAL / "test_reflected.py", requirements.missing),
    Part("real nodes leave nothing behind", REAL / "test_leaves_nothing.py", requirements.missing),
    Part("a real node with containerd 1.6", REAL / "test_containerd_16.py", _no_wasm_nodes),
    Part("the chart on three real nodes", REAL / "test_chart.py", requirements.missing),
    Part("the life of an installation of the chart", REAL / "test_chart_life.py", _no_installation),
    Part("three real nodes", REAL / "test_three_nodes.py", requirements.missing),
    Part("the real wasmCloud host", LATTICE / "test_real_host.py", lattice_servers.missing, quick=True),
    Part("applications in a real lattice with wadm", LATTICE / "test_applications.py", lattice_servers.missing),
    Part("the client of a real wadm", LATTICE / "test_wadm_client.py", lattice_servers.missing),
    Part("what a real wadm stores, as it is seen", LATTICE / "test_model_store.py", lattice_servers.missing),
    Part("kubectl and wash agree on applications", LATTICE / "test_kept.py", lattice_servers.missing, quick=True),
    Part("applications while servers are away", LATTICE / "test_outages.py", lattice_servers.missing),
    Part("applications of tenants of one wadm", LATTICE / "test_tenants.py", lattice_servers.missing),
    Part("applications as kubectl, Flux and Argo CD treat them", LATTICE / "test_gitops.py", lattice_servers.missing),
    Part("no application is lost by mistake", LATTICE / "test_kept_care.py", lattice_servers.missing),
    Part("both sides while every server is killed", LATTICE / "test_two_sides.py", lattice_servers.missing),
    Part("applications of a real lattice as Services", LATTICE / "test_reflected.py", lattice_servers.missing),
    Part("groups of hosts in a real lattice", LATTICE / "test_host_groups.py", lattice_servers.missing),
    Part("the chart's wadm, on the chart's NATS", LATTICE / "test_chart.py", lattice_servers.missing),
    Part("secrets that a real host gives a component", LATTICE / "test_secrets.py", _no_secrets),
    Part("services die at each boundary", LATTICE / "test_crash_points.py", lattice_servers.missing, processes=2),
    Part("local clusters with lattices", LATTICE / "test_dev_wadm.py", lattice_servers.missing),
    Part("metrics-server and hosts that work", OPERATORS / "test_hpa.py", lambda: None),
    Part("KEDA and hosts by the hour", OPERATORS / "test_keda.py", lambda: None),
    Part("Flux and the examples in git", OPERATORS / "test_flux.py", _no_git),
    Part("Argo CD and the examples in git", OPERATORS / "test_argocd.py", _no_redis),
    Part("cert-manager and the bus's certificates", OPERATORS / "test_cert_manager.py", lambda: None),
)


def _tests(part: Part) -> list[str]:
    """Return the names of a part's tests; empty if they are not written yet."""
    if not part.tests.exists():
        return []
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", str(part.tests)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line for line in answer.stdout.splitlines() if "::" in line]


def main() -> int:
    """Run what can be run; print one line a part, and the name of each test that was not run.

    With ``--quick`` only the parts that take a minute.
    """
    failed = left_out = 0
    for part in [part for part in PARTS if part.quick or "--quick" not in sys.argv[1:]]:
        if (reason := part.missing()) is not None:
            print(f"NOT RUN  {part.name}: {reason}")
            for test in _tests(part):
                print(f"NOT RUN    {test}")
            left_out += 1
            continue
        shared = ["-n", str(part.processes)] if part.processes > 1 else []
        code = subprocess.run([sys.executable, "-m", "pytest", "-q", *shared, str(part.tests)], check=False).returncode
        print(f"{'passed ' if code == 0 else 'FAILED '}  {part.name}", flush=True)
        failed += code != 0
    return 1 if failed else NOT_RUN if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
