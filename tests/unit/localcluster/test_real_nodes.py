"""Real nodes, as far as nothing has to run: addresses, configuration, images, control groups, what a machine lacks."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import tomllib
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.secrets import secrets_client
from support.suite.naming import lacking
from trellis_dev.commands import dev
from trellis_dev.commands import local as dev_local
from trellis_dev.localcluster import cgroups, requirements, supervisor, tools, wasmshim
from trellis_dev.localcluster.certs import SERVICE_RANGE, read_token, write_pki
from trellis_dev.localcluster.commands import command
from trellis_dev.localcluster.coredns import DNS_ADDRESS, coredns_objects
from trellis_dev.localcluster.errors import StartError, ToolError
from trellis_dev.localcluster.node_images import PAUSE
from trellis_dev.localcluster.ociarchive import Image, write_image
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.realnode_network import Addresses
from trellis_dev.localcluster.realnode_root import containerd_2, containerd_16, write_lower, write_upper
from trellis_dev.localcluster.state import NODE_NAMES

PACKAGE = Path(supervisor.__file__).parent
PROJECTS = (
    *(PACKAGE / name for name in ("runtime", "v2host", "wasmcloud")),
    Path(secrets_client.__file__).with_suffix(""),
)


def test_addresses_of_nodes_and_pods_are_apart_and_in_the_range() -> None:
    addresses = Addresses(100)
    indices = range(len(NODE_NAMES))
    nodes = {ip_address(addresses.node(index)) for index in indices} | {ip_address(addresses.machine)}
    subnets = [ip_network(addresses.pods(index)) for index in indices]
    assert len(nodes) == len(NODE_NAMES) + 1
    assert not any(node in subnet for node in nodes for subnet in subnets)
    assert not any(a.overlaps(b) for a in subnets for b in subnets if a is not b)
    assert not ip_network("10.100.0.0/16").overlaps(ip_network(SERVICE_RANGE))
    assert ip_address(DNS_ADDRESS) in ip_network(SERVICE_RANGE)


def test_a_node_has_a_route_to_each_other_node_and_none_to_itself() -> None:
    peers = Addresses(100).settings(1)["PEERS"].split()
    assert len(peers) == len(NODE_NAMES) - 1
    assert "10.100.1.0/24,10.100.0.10" in peers
    assert not any(peer.endswith(",10.100.0.11") for peer in peers)


def test_both_configurations_of_containerd_name_what_is_there() -> None:
    two, item = tomllib.loads(containerd_2()), tomllib.loads(containerd_16())
    assert (two["version"], item["version"]) == (3, 2)
    assert two["plugins"]["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == PAUSE
    assert item["plugins"]["io.containerd.grpc.v1.cri"]["sandbox_image"] == PAUSE
    places = [two["plugins"]["io.containerd.cri.v1.images"], item["plugins"]["io.containerd.grpc.v1.cri"]]
    assert {place["registry"]["config_path"] for place in places} == {"/etc/containerd/certs.d"}
    runtime = two["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["cni"]["bin_dirs"] == ["/usr/lib/cni"]
    assert set(runtime["containerd"]["runtimes"]) == {"runc"}


def test_the_disk_of_a_node_has_its_own_credentials_and_shares_the_rest(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "one")
    layout.pki.mkdir(parents=True)
    write_pki(layout.pki, "10.100.0.1", NODE_NAMES)
    program = tmp_path / "kubelet"
    program.write_text("program")
    write_lower(layout.root / "lower", {"kubelet": program}, {"pause": program}, layout.pki / "ca.crt")
    write_upper(layout.root / "upper", layout, "https://10.100.0.1:6443", ("real-2", 2, Addresses(100)))

    lower, upper = layout.root / "lower", layout.root / "upper"
    assert (lower / "usr/bin/kubelet").stat().st_ino == program.stat().st_ino
    assert os.access(lower / "usr/bin/systemctl", os.X_OK)
    assert tomllib.loads((lower / "etc/containerd/config.toml").read_text())["version"] == 2  # no containerd given
    kubelet = (upper / "etc/kubernetes/kubelet.conf").read_text()
    assert read_token(layout.pki, "real-2") in kubelet
    assert not any(read_token(layout.pki, name) in kubelet for name in ("real-1", "admin"))
    assert (upper / "etc/kubernetes/kubelet.conf").stat().st_mode & 0o077 == 0
    (bridge, _) = json.loads((upper / "etc/cni/net.d/10-node.conflist").read_text())["plugins"]
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.100.3.0/24"}]]


def test_a_node_is_a_user_that_the_api_server_authorises_as_a_node(tmp_path: Path) -> None:
    write_pki(tmp_path, "10.100.0.1", NODE_NAMES)
    lines = (tmp_path / "tokens.csv").read_text().splitlines()
    assert any(line.endswith(",system:node:real-0,real-0,system:nodes") for line in lines)
    assert any(line.endswith(",system:kube-proxy,kube-proxy") for line in lines)
    (tmp_path / "without").mkdir()
    write_pki(tmp_path / "without")
    assert "system:node" not in (tmp_path / "without" / "tokens.csv").read_text()


@pytest.mark.parametrize(("address", "reconciles"), [("127.0.0.1", False), ("10.100.0.1", True)])
def test_the_api_server_is_an_endpoint_only_where_pods_reach_it(address: str, reconciles: bool) -> None:
    argv = command("kube-apiserver", Layout(Path("/x")), {"kube-apiserver": 1, "etcd": 2}, audit=False, address=address)
    assert f"--advertise-address={address}" in argv
    assert ("--endpoint-reconciler-type=none" not in argv) is reconciles
    assert any(argument.startswith("--kubelet-client-key") for argument in argv) is reconciles


def test_coredns_runs_only_on_real_nodes_and_asks_no_other_server() -> None:
    objects = {manifest["kind"]: manifest for _, manifest in coredns_objects("image")}
    assert objects["Deployment"]["spec"]["template"]["spec"]["nodeSelector"] == {"trellis.local/real-node": "true"}
    assert objects["Service"]["spec"]["clusterIP"] == DNS_ADDRESS
    assert "forward" not in objects["ConfigMap"]["data"]["Corefile"]
    assert "namespace" not in objects["ClusterRole"]["metadata"]


def test_an_image_is_the_same_bytes_for_the_same_files(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("x")
    image = Image("example.com/a:1", ["/bin/program"], "amd64", links={"bin/sh": "program"}, open_directories=["tmp"])
    for name in ("one", "two"):
        write_image(tmp_path / name, image, {"bin/program": program})
        program.touch()
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert not (tmp_path / "one.layer").exists()
    with tarfile.open(tmp_path / "one") as archive:
        index = json.load(archive.extractfile("index.json"))  # type: ignore[arg-type]
        (manifest,) = index["manifests"]
        assert manifest["annotations"]["io.containerd.image.name"] == "example.com/a:1"
        layer = next(name for name in archive.getnames() if name.startswith("blobs/") and _is_tar(archive, name))
        with tarfile.open(fileobj=archive.extractfile(layer)) as files:
            assert {entry.name: entry.mode for entry in files} == {
                "bin": 0o755, "tmp": 0o1777, "bin/program": 0o755, "bin/sh": 0o777
            }  # fmt: skip


def _is_tar(archive: tarfile.TarFile, name: str) -> bool:
    content = archive.extractfile(name)
    assert content is not None
    return content.read(2) != b'{"'


CGROUP = "9:name=systemd:/\n4:memory:/ours\n3:cpu,cpuacct:/ours/deep\n0::/\n"
MOUNTS = """\
30 25 0:26 / {root}/memory rw - cgroup cgroup rw,memory
31 25 0:27 /ours {root}/cpu rw - cgroup cgroup rw,cpuacct,cpu
32 25 0:28 / {root}/systemd rw - cgroup cgroup rw,xattr,name=systemd
33 25 0:29 / {root}/unified rw - cgroup2 cgroup2 rw
"""


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cgroup").write_text(CGROUP)
    (tmp_path / "mountinfo").write_text(MOUNTS.format(root=tmp_path))
    for path in ("memory/ours", "cpu/deep", "systemd", "unified"):
        (tmp_path / path).mkdir(parents=True)
    monkeypatch.setattr(cgroups, "_PROC", tmp_path)
    return tmp_path


def test_a_node_gets_a_cgroup_below_that_of_trellis_in_each_hierarchy(groups: Path) -> None:
    made = cgroups.make_groups("abc", "real-0")
    assert made.hierarchies == ("memory", "cpuacct,cpu", "name=systemd")
    assert made.directories == tuple(
        groups / path / "trellis-abc" / "real-0" for path in ("memory/ours", "cpu/deep", "systemd")
    )
    assert all(path.is_dir() for path in made.directories)


def test_with_cgroup_v2_alone_the_group_starts_at_the_top(groups: Path) -> None:
    (groups / "mountinfo").write_text(MOUNTS.format(root=groups).splitlines()[-1])
    made = cgroups.make_groups("abc", "real-0")
    assert made.unified
    assert made.directories == (groups / "unified/trellis-abc/real-0",)


def test_a_cgroup_that_cannot_be_created_is_named(groups: Path) -> None:
    (groups / "memory/ours/trellis-abc").write_text("in the way")
    with pytest.raises(StartError, match=r"memory/ours/trellis-abc/real-0"):
        cgroups.make_groups("abc", "real-0")


def test_sweeping_removes_the_groups_of_that_cluster_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("memory/a/trellis-mine/real-0/kubepods", "cpu/trellis-mine/real-0", "cpu/trellis-other/real-0"):
        (tmp_path / path).mkdir(parents=True)
    monkeypatch.setattr(supervisor, "_CGROUPS", tmp_path)
    supervisor.sweep("mine")
    assert [path.name for path in tmp_path.rglob("trellis-*")] == ["trellis-other"]


def test_missing_root_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(tools, "ensure_all", lambda *_: pytest.fail("it began to build"))
    reason = requirements.missing()
    assert lacking(reason, "root") == []
    result = CliRunner().invoke(dev.app, ["up", "--real-node"])
    assert result.exit_code == 1
    assert result.stderr == f"Error: {reason}\n"


def test_each_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    reason = requirements.missing()
    assert reason is not None
    assert "ip (package iproute2)" in reason
    assert lacking(reason, "apt-get", "dpkg", "debootstrap") == []
    assert "\n" not in reason


def test_control_groups_that_cannot_be_written_to_are_named(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "access", lambda path, _: "memory" not in str(path))
    reason = requirements.missing()
    assert reason is not None
    assert f"({groups}/memory/ours)" in reason
    assert "cpu" not in reason


def test_without_rust_the_shim_names_the_missing_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert lacking(wasmshim.missing(), "cargo, cc") == []
    with pytest.raises(ToolError, match="cargo"):
        wasmshim.shim(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.name)
def test_the_crates_are_pinned_by_checksum_and_name_no_address(project: Path) -> None:
    lock = tomllib.loads((project / "crates.lock").read_text())
    manifest = tomllib.loads((project / "Cargo.toml").read_text())
    ours = [package for package in lock["package"] if "checksum" not in package]
    assert [package["name"] for package in ours] == [manifest["package"]["name"]]
    assert not any("source" in package for package in lock["package"])
    locked = {(package["name"], f"={package['version']}") for package in lock["package"]}
    wanted = manifest["dependencies"].items()
    assert {(name, spec if isinstance(spec, str) else spec["version"]) for name, spec in wanted} <= locked


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ([], 0),
        (["--real-node"], 1),
        (["--real-node=3"], 3),
        (["--real-node", "3"], 3),
        (["--real-node", "-o", "json"], 1),
    ],
)
def test_real_node_takes_a_number_or_means_one(
    arguments: list[str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[int] = []
    monkeypatch.setattr(dev_local, "up", lambda *_, real, **__: requested.append(real.count))
    result = CliRunner().invoke(dev.app, ["up", *arguments])
    assert result.exit_code == 0, result.stderr
    assert requested == [count]


@pytest.mark.parametrize("script", sorted((PACKAGE / "node").glob("*.sh")), ids=lambda path: path.name)
def test_a_nodes_scripts_are_shell(script: Path) -> None:
    assert subprocess.run(["/bin/sh", "-n", str(script)], check=False).returncode == 0
