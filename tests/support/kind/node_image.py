"""An image of nodes for kind, which are otherwise pulled: of Debian, the files in kind's own module, and images.

In: the module of kind, the programs of Kubernetes. Out: an archive for `docker import`. Called by ``cluster``.
It differs from a published one: Debian and its containerd and runc are others, the network of pods is a fixed
configuration in place of kindnet, and images are imported when a node starts.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from trellis_dev.localcluster import debian, gobuild, tools
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import architecture
from trellis_dev.localcluster.ociarchive import Image, write_image, write_tree
from trellis_dev.localcluster.versions import products

IMAGE: Final = f"kindest/node:v{products()['kubernetes'].version}"
_PAUSE: Final = "registry.k8s.io/pause:3.10"
"""As in kind's configuration of containerd."""
_CONTROL_PLANE: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
_OF_KUBERNETES: Final = ("kubeadm", "kubectl", "kubelet")
_PROGRAMS: Final = ("containerd", "containerd-shim-runc-v2", "ctr")
_PROVISIONER: Final = "local-path-provisioner"
_UNITS: Final = "etc/systemd/system"
_OF_PACKAGES: Final = "usr/lib/systemd/system"
_DISABLED: Final = tuple(f"{target}.target.wants" for target in ("multi-user", "local-fs", "basic"))
_IMAGES: Final = "usr/share/trellis-node/images"
_WANTED: Final = ("containerd.service", "kubelet.service", "undo-mount-hacks.service")
_PODS: Final = "10.244.0.0/24"
"""The pods of the first node, by the defaults of kind."""
_DROP_IN: Final = "[Unit]\nAfter=trellis-images.service\nWants=trellis-images.service\n"
_OOM: Final = "restrict_oom_score_adj = "
"""Without CAP_SYS_RESOURCE, which some machines lack, containers cannot be protected from the OOM killer."""


def write_node_image(folder: Path, how: How) -> Path:
    """Write the archive of a node's root; ``folder``: an empty one."""
    wanted = [*_CONTROL_PLANE, *_PROGRAMS, *_OF_KUBERNETES, "coredns", "kube-proxy", _PROVISIONER]
    programs = tools.ensure_all(wanted, how.progress, how.abort)
    kind = gobuild.module_folder("kind", how.progress, how.abort)
    root = folder / "root"
    _copy_files(kind / "images/base/files", root)
    for name in _OF_KUBERNETES:
        _put(root / "usr/bin" / name, programs[name])
    for name in _PROGRAMS:
        _put(root / "usr/local/bin" / name, programs[name])
    _configure(root, programs["ctr"])
    images = _system_images(folder, programs, how) | _storage(folder, root, kind, programs[_PROVISIONER], how)
    for name, archive in images.items():
        _put(root / _IMAGES / f"{name}.tar", archive)

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if _is_disabled(entry) or _is_file(root / entry.name) else entry

    base, target = debian.tree("kind", how), folder / "node.tar"
    with tarfile.open(target, "w") as tar:
        tar.add(base, arcname=".", filter=kept)
        for path in sorted(root.rglob("*")):  # the engine refuses an entry that is there twice
            name = path.relative_to(root)
            if _is_file(path) or not (base / name).exists():
                tar.add(path, arcname=f"./{name}", recursive=False)
    return target


def _is_file(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def _copy_files(source: Path, root: Path) -> None:
    """Copy the files of kind with the modes that its build gives them."""
    shutil.copytree(source, root)
    for path in (root, *root.rglob("*")):
        is_program = path.is_dir() or path.parent.name == "bin"
        path.chmod(0o755 if is_program else 0o644)


def _configure(root: Path, ctr: Path) -> None:
    """Write what kind's build makes besides, and what stands in for kindnet."""
    for name in _WANTED:
        _link(root / _UNITS / "multi-user.target.wants" / name, f"/{_UNITS}/{name}")
    _link(root / _UNITS / "systemd-binfmt.service", "/dev/null")
    _link(root / "usr/sbin/init", "/lib/systemd/systemd")
    _link(root / "opt/cni/bin", "/usr/lib/cni")
    spec = json.loads(subprocess.run([ctr, "oci", "spec"], capture_output=True, text=True, check=True).stdout)
    del spec["process"]["rlimits"]
    spec["hooks"] = {"createContainer": [{"path": "/kind/bin/mount-product-files.sh"}]}
    _write(root / "etc/containerd/cri-base.json", json.dumps(spec))
    config = root / "etc/containerd/config.toml"
    text = config.read_text(encoding="utf-8")
    assert f"{_OOM}false" in text
    config.write_text(text.replace(f"{_OOM}false", f"{_OOM}true"), encoding="utf-8")
    _write(root / "etc/cni/net.d/10-node.conflist", json.dumps(_network()))
    _write(root / "kind/version", f"v{products()['kubernetes'].version}")
    (root / "etc/kubernetes/manifests").mkdir(parents=True)
    shutil.copytree(Path(__file__).parents[1] / "systemd/files", root / "usr/lib/trellis-node")
    shutil.copy(root / "usr/lib/trellis-node/trellis-images.service", root / _UNITS)
    _write(root / _UNITS / "kubelet.service.d/20-images.conf", _DROP_IN)


def _network() -> dict[str, Any]:
    """Return a network of the pods of one node, as kindnet configures it."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": _PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}
    plugins = [
        {"type": "ptp", "ipMasq": False, "ipam": addresses},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return {"cniVersion": "0.3.1", "name": "node", "plugins": plugins}


def _system_images(folder: Path, programs: Mapping[str, Path], how: How) -> dict[str, Path]:
    """Write the images that kubeadm and the configuration of containerd name."""
    version = f"--kubernetes-version=v{products()['kubernetes'].version}"
    listed = subprocess.run(
        [programs["kubeadm"], "config", "images", "list", version], capture_output=True, text=True, check=True
    ).stdout.split()
    names = {name.rpartition("/")[2].partition(":")[0]: name for name in listed}
    made = {}
    for name in (*_CONTROL_PLANE, "coredns"):
        made[name] = folder / f"{name}.tar"
        image = Image(names[name], [f"/{name}"], architecture(), links={f"usr/local/bin/{name}": f"/{name}"})
        write_image(made[name], image, {name: programs[name]})
    made["kube-proxy"] = folder / "kube-proxy.tar"
    tree = folder / "kube-proxy"
    subprocess.run(["cp", "--archive", debian.tree("node", how), tree], check=True)
    unneeded = ("usr/share", "usr/lib/cni", "var", "usr/bin/containerd", "usr/bin/ctr")
    subprocess.run(["rm", "-r", *(tree / path for path in unneeded)], check=True)
    _put(tree / "usr/local/bin/kube-proxy", programs["kube-proxy"])
    write_tree(made["kube-proxy"], Image(names["kube-proxy"], ["kube-proxy"], architecture()), tree)
    shutil.rmtree(tree)
    made["pause"] = folder / "pause.tar"
    write_image(made["pause"], Image(_PAUSE, ["/bin/busybox", "sleep", "infinity"], architecture()), _busybox(how))
    return made


def _storage(folder: Path, root: Path, kind: Path, program: Path, how: How) -> dict[str, Path]:
    """Write the manifest of kind's volumes, as kind's build has it, and the images that it names."""
    text = (kind / "pkg/build/nodeimage/const_storage.go").read_text(encoding="utf-8")
    named = dict(re.findall(r'^const (\w+) = "([^"]+)"$', text, re.MULTILINE))
    manifest = text.partition("const defaultStorageManifest = `")[2]
    for name, value in named.items():
        manifest = manifest.replace(f"` + {name} + `", value)
    _write(root / "kind/manifests/default-storage.yaml", manifest.partition("`")[0])
    provisioner, helper = Image(named["storageProvisionerImage"], [], architecture()), folder / "helper.tar"
    made = {"provisioner": folder / "provisioner.tar", "helper": helper}
    write_image(made["provisioner"], provisioner, {f"usr/local/bin/{_PROVISIONER}": program})
    shell = {f"bin/{applet}": "busybox" for applet in ("mkdir", "rm", "sh")}
    write_image(helper, Image(named["storageHelperImage"], [], architecture(), links=shell), _busybox(how))
    return made


def _busybox(how: How) -> dict[str, Path]:
    return {"bin/busybox": debian.tree("node", how) / "bin/busybox"}


def _is_disabled(entry: tarfile.TarInfo) -> bool:
    """Return whether an entry is a device, or a unit that kind's build disables."""
    parent, _, name = entry.name.removeprefix("./").rpartition("/")
    folder, _, wants = parent.rpartition("/")
    disabled = folder == _UNITS and wants.endswith(".wants")
    if folder == _OF_PACKAGES:
        disabled = wants in _DISABLED or (wants == "sockets.target.wants" and ("udev" in name or "initctl" in name))
        disabled |= name == "systemd-tmpfiles-setup.service"
    return entry.isdev() or disabled


def _put(target: Path, source: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
