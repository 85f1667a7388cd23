"""The parts of ``make test-all``: the command of each, and what it needs.

A part that cannot run on a machine names what is missing there.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trellis_dev.localcluster import lattice_servers, page, requirements, v2host, wasmshim

sys.path.append(str(Path(__file__).resolve().parents[1]))
from support.cluster import local_address
from support.k3s import cluster as k3s
from support.secrets import secrets_client
from support.systemd import machine


@dataclass(frozen=True)
class Part:
    """A part: the arguments that Python gets, and what is missing here (None if it can run).

    ``counted``: it takes pytest's ``--junit-xml``. ``quick``: it takes a minute and is in ``--quick``.
    """

    name: str
    arguments: tuple[str | Path, ...]
    missing: Callable[[], str | None]
    counted: bool = False
    quick: bool = False

    @property
    def tests(self) -> Path | None:
        """The file of a part that is one file of tests."""
        last = self.arguments[-1]
        return last if isinstance(last, Path) and last.name.startswith("test_") else None


def _pytest(
    name: str, file: Path, missing: Callable[[], str | None], *, quick: bool = False, processes: int = 0
) -> Part:
    """Return the part of one file of tests; each of several processes has a control plane of its own."""
    return Part(name, ("-m", "pytest", "-q", "-n", str(processes), file), missing, counted=True, quick=quick)


def _nothing() -> None:
    return None


def _no_wasm_nodes() -> str | None:
    return requirements.missing() or wasmshim.missing()


def _no_systemd() -> str | None:
    return _no_wasm_nodes() or machine.missing()


def _no_installation() -> str | None:
    return _no_wasm_nodes() or _no_secrets()


def _no_secrets() -> str | None:
    return lattice_servers.missing() or secrets_client.missing()


def _no_two_versions() -> str | None:
    return lattice_servers.missing() or v2host.missing() or local_address.missing()


def _no_git() -> str | None:
    return None if shutil.which("git") else "git is missing, which serves the repository"


def _no_redis() -> str | None:
    missing = [name for name in ("apt-get", "dpkg") if not shutil.which(name)]
    return _no_git() or (f"{missing[0]} is missing: redis is one of Debian's packages" if missing else None)


def _no_release() -> str | None:
    missing = [name for name in ("apt-get", "dpkg-deb") if not shutil.which(name)]
    return page.missing() or (f"{missing[0]} is missing: images consist of Debian's packages" if missing else None)


def _no_compose() -> str | None:
    return page.missing() or _no_wasm_nodes()


def _no_k3s() -> str | None:
    return k3s.missing() or wasmshim.missing()


def _no_release_on_nodes() -> str | None:
    return _no_release() or _no_wasm_nodes()


HERE = Path(__file__).parent
TESTS = HERE.parent
REAL = HERE / "real_node"
LATTICE = HERE / "lattice"
V2 = HERE / "v2"
OPERATORS = HERE / "operators"
RELEASE = HERE / "release"
COMPOSE = HERE / "compose"
CLUSTERS = HERE / "clusters"
PARTS = (
    Part("the thorough integration tests", (TESTS / "integration/run.py", "--thorough"), _nothing, counted=True),
    Part("the thorough unit tests", (TESTS / "units.py", "--thorough"), _nothing, counted=True),
    Part("chaos, 20 seeds", (TESTS / "chaos/run.py", "--runs", "20"), _nothing),
    Part("fuzzing", (TESTS / "fuzz/run.py",), _nothing),
    Part("sabotage", (TESTS / "sabotage/run.py",), _nothing),
    _pytest("installation and removal of a Shim on a real node", REAL / "test_rollout.py", _no_wasm_nodes, quick=True),
    _pytest("Shims on three real nodes", REAL / "test_rollout_three.py", _no_wasm_nodes),
    _pytest("a Shim that breaks a workload, on three real nodes", REAL / "test_rollout_pods.py", _no_wasm_nodes),
    _pytest("pods and the removal of their Shim", REAL / "test_removal.py", _no_wasm_nodes),
    _pytest("Shims that only a canary can verify, and containerd 1.6", REAL / "test_canary.py", _no_wasm_nodes),
    _pytest("one real node: installers and Wasm", REAL / "test_one_node.py", _no_wasm_nodes, quick=True),
    _pytest("the installer on real nodes", REAL / "test_installer.py", _no_wasm_nodes),
    _pytest("an image built from a Dockerfile, on a real node", REAL / "test_images.py", _no_wasm_nodes),
    _pytest("contents of the images", REAL / "test_image_contents.py", _no_wasm_nodes),
    _pytest("the services' image, as the chart runs it", REAL / "test_services_image.py", requirements.missing),
    _pytest("the demo with a real node", REAL / "test_demo.py", _no_wasm_nodes),
    _pytest("Wasm pods that are broken, explained", REAL / "test_explain_pods.py", _no_wasm_nodes),
    _pytest("tools that verify installers", REAL / "test_verification_tools.py", _no_wasm_nodes),
    _pytest("the installer, fetching by https", REAL / "test_installer_https.py", _no_wasm_nodes),
    _pytest("the installer, from a private registry by a proxy", REAL / "test_installer_private.py", _no_wasm_nodes),
    _pytest("the installer's spans, in a Jaeger", REAL / "test_installer_traces.py", _no_wasm_nodes),
    _pytest("shims that work and shims that do not", REAL / "test_shims.py", _no_wasm_nodes),
    _pytest("host groups on a real node", REAL / "test_host_groups.py", requirements.missing),
    _pytest("an application is reached on a real node", REAL / "test_reflected.py", requirements.missing),
    _pytest("real nodes leave nothing behind", REAL / "test_leaves_nothing.py", requirements.missing),
    _pytest("a real node with containerd 1.6", REAL / "test_containerd_16.py", _no_wasm_nodes),
    _pytest("the systemd cgroup driver, on a virtual machine", REAL / "test_systemd.py", _no_systemd),
    _pytest("the chart on three real nodes", REAL / "test_chart.py", _no_wasm_nodes),
    _pytest("the default Shim on real nodes", REAL / "test_default_shim.py", _no_wasm_nodes),
    _pytest("the life cycle of a chart installation", REAL / "test_chart_life.py", _no_installation),
    _pytest("three real nodes", REAL / "test_three_nodes.py", requirements.missing),
    _pytest("docker-compose.yml on a real engine, with a stand-in of k3s", COMPOSE / "test_compose.py", _no_compose),
    _pytest("the installer, with a stand-in of k3s", CLUSTERS / "test_k3s_containerd.py", _no_wasm_nodes),
    _pytest("the walk-through of k3s", CLUSTERS / "test_k3s.py", _no_k3s),
    _pytest("the walk-through of k3s in a container", CLUSTERS / "test_k3s_in_container.py", _no_k3s),
    _pytest("the walk-through of kind", CLUSTERS / "test_kind.py", _no_wasm_nodes),
    _pytest("a release in a registry", RELEASE / "test_release.py", _no_release),
    _pytest("a release on three real nodes", RELEASE / "test_release_on_nodes.py", _no_release_on_nodes),
    _pytest("the real wasmCloud host", LATTICE / "test_real_host.py", lattice_servers.missing, quick=True),
    _pytest("applications in a real lattice with wadm", LATTICE / "test_applications.py", lattice_servers.missing),
    _pytest("the client of a real wadm", LATTICE / "test_wadm_client.py", lattice_servers.missing),
    _pytest("the storage of a real wadm", LATTICE / "test_model_store.py", lattice_servers.missing),
    _pytest("kubectl and wash agree on applications", LATTICE / "test_synced.py", lattice_servers.missing, quick=True),
    _pytest("applications whose storage is restored", LATTICE / "test_restored.py", lattice_servers.missing),
    _pytest("applications while servers are unavailable", LATTICE / "test_outages.py", lattice_servers.missing),
    _pytest("applications of tenants of one wadm", LATTICE / "test_tenants.py", lattice_servers.missing),
    _pytest("applications under kubectl, Flux and Argo CD", LATTICE / "test_gitops.py", lattice_servers.missing),
    _pytest("no application is lost by mistake", LATTICE / "test_sync_repairs.py", lattice_servers.missing),
    _pytest("both sides while every server is killed", LATTICE / "test_two_sides.py", lattice_servers.missing),
    _pytest("applications of a real lattice as Services", LATTICE / "test_reflected.py", lattice_servers.missing),
    _pytest("host groups in a real lattice", LATTICE / "test_host_groups.py", lattice_servers.missing),
    _pytest("the chart's wadm, on the chart's NATS", LATTICE / "test_chart.py", lattice_servers.missing),
    _pytest("secrets that a real host gives a component", LATTICE / "test_secrets.py", _no_secrets),
    _pytest("services die at each boundary", LATTICE / "test_crash_points.py", lattice_servers.missing, processes=2),
    _pytest("local clusters with lattices", LATTICE / "test_dev_wadm.py", lattice_servers.missing),
    _pytest("wasmCloud v2's host, held to the recordings", V2 / "test_host_contract.py", v2host.missing, quick=True),
    _pytest("HTTP components on wasmCloud v2's host", V2 / "test_http.py", v2host.missing),
    _pytest("hello and counter on wasmCloud v1, and converted on v2", V2 / "test_from_v1.py", _no_two_versions),
    _pytest("metrics-server and hosts that work", OPERATORS / "test_hpa.py", _nothing),
    _pytest("KEDA and hosts by the hour", OPERATORS / "test_keda.py", _nothing),
    _pytest("Flux and the examples in git", OPERATORS / "test_flux.py", _no_git),
    _pytest("Argo CD and the examples in git", OPERATORS / "test_argocd.py", _no_redis),
    _pytest("cert-manager and the bus's certificates", OPERATORS / "test_cert_manager.py", _nothing),
)
