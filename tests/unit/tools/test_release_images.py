"""Images of a release have what their Dockerfiles say, and the same bytes each time."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from trellis_dev.localcluster.own_images import INSTALLER, SERVICES, OwnImage
from trellis_tools.release import oci
from trellis_tools.release.artifacts import repack
from trellis_tools.release.base import Package, complete, is_kept, merged, python_of, without
from trellis_tools.release.dockerfile import Stage, final_stage
from trellis_tools.release.errors import ReleaseError
from trellis_tools.release.layout import Entry, Layout, entries_of, write_layer
from trellis_tools.release.plan import IMAGES
from trellis_tools.release.publish import predicates

ROOT = Path(__file__).parents[3]
BASE = {"PATH": "/usr/bin:/bin"}
EPOCH = 1_700_000_000


def stage(*lines: str) -> Stage:
    return final_stage("\n".join(["FROM a AS build", "RUN make", "FROM ${BASE}", *lines]), {"REVISION": "abc"}, BASE)


@pytest.mark.parametrize("image", [SERVICES, INSTALLER], ids=lambda image: image.key)
def test_the_dockerfiles_are_understood(image: OwnImage) -> None:
    arguments = {"BASE": "base:1", "VERSION": "9.8.7", "REVISION": "abc"}
    found = final_stage((ROOT / image.dockerfile).read_text(), arguments, BASE)
    sources = {source for source, _ in found.copies}
    assert {"/inventory"} < sources
    labels = {name.rpartition(".")[2]: value for name, value in found.labels.items()}
    assert (labels["version"], labels["revision"], labels["name"]) == ("9.8.7", "abc", "base:1")
    assert found.entrypoint
    assert found.user in {"65532:65532", "0:0"}
    assert found.removed
    assert {SERVICES.key, INSTALLER.key} == set(IMAGES)


def test_the_final_stage_is_what_an_image_has() -> None:
    found = stage(
        "# a comment",
        "ARG VERSION=1",
        "ARG REVISION=unknown",
        'LABEL a="x y" \\',
        '      b="${VERSION}-$REVISION"',
        "ENV PATH=/opt/bin:$PATH MODE=1",
        "COPY --from=build /opt/x /opt/y",
        "RUN rm -rf /usr/local/bin/pip* \\",
        "    /usr/lib/ensurepip",
        "USER 1:1",
        'ENTRYPOINT ["x"]',
        'CMD ["run", "it"]',
    )
    assert found.labels == {"a": "x y", "b": "1-abc"}
    assert found.environment == {"PATH": "/opt/bin:/usr/bin:/bin", "MODE": "1"}
    assert found.copies == [("/opt/x", "/opt/y")]
    assert found.removed == ["/usr/local/bin/pip*", "/usr/lib/ensurepip"]
    assert (found.user, found.entrypoint, found.command) == ("1:1", ["x"], ["run", "it"])


@pytest.mark.parametrize(
    "line",
    [
        "RUN apt-get install x",
        "RUN rm -rf /a && rm /b",
        "COPY a b",
        "COPY --from=other /a /b",
        "ADD a b",
        "VOLUME /data",
        "CMD run it",
        "LABEL a=$NOTHING",
    ],
)
def test_an_instruction_that_a_release_does_not_support_is_refused(line: str) -> None:
    with pytest.raises(ReleaseError, match=line.split(" ", maxsplit=1)[0] if "$" not in line else "NOTHING"):
        stage(line)


def test_paths_of_packages_are_below_usr() -> None:
    names = ["bin", "bin/sh", "lib/x86_64-linux-gnu/libc.so.6", "lib64/ld.so", "usr/lib/a", "etc/lib/a", "library"]
    assert [merged(name) for name in names] == [
        "usr/bin", "usr/bin/sh", "usr/lib/x86_64-linux-gnu/libc.so.6", "usr/lib64/ld.so", "usr/lib/a", "etc/lib/a",
        "library",
    ]  # fmt: skip


def test_manuals_are_left_out_and_licences_are_not() -> None:
    assert not is_kept("usr/share/man/man1/nsenter.1.gz")
    assert not is_kept("usr/share/doc/libc6/changelog.Debian.gz")
    assert is_kept("usr/share/doc/libc6/copyright")
    assert is_kept("usr/share/manifest")
    assert is_kept("usr/bin/nsenter")


def test_removed_paths_are_removed_with_what_is_below_them() -> None:
    names = [
        "usr/local/bin/pip",
        "usr/local/bin/pip3.11",
        "usr/local/bin/python",
        "usr/lib/ensurepip/a/b.py",
        "usr/lib/x",
    ]
    left = without({name: Entry(content=b"") for name in names}, ["/usr/local/bin/pip*", "/usr/lib/ensurepip"])
    assert list(left) == ["usr/local/bin/python", "usr/lib/x"]


def a_package(name: str, version: str = "1.0-1") -> Package:
    fields = {"Package": name, "Version": version, "Architecture": "arm64"}
    return Package(Path(f"/{name}.deb"), fields, "".join(f"{key}: {value}\n" for key, value in fields.items()))


@pytest.fixture
def base(tmp_path: Path) -> dict[str, Entry]:
    found = {}
    for name, text in {
        "usr/share/base-passwd/passwd.master": "root:*:0:0\n",
        "usr/share/base-passwd/group.master": "root:*:0\n",
        "usr/share/libc-bin/nsswitch.conf": "hosts: files dns\n",
        "usr/share/ca-certificates/mozilla/B.crt": "second",
        "usr/share/ca-certificates/mozilla/A.crt": "first\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        found[name] = Entry(0o644, source=path)
    return found


def test_the_base_has_what_scripts_of_packages_would_make(base: dict[str, Entry]) -> None:
    found = complete(base, [a_package("libc6")])
    assert found["etc/ssl/certs/ca-certificates.crt"].content == b"first\nsecond\n"
    assert found["etc/passwd"].source == base["usr/share/base-passwd/passwd.master"].source
    assert found["bin"].link == "usr/bin"
    assert found["tmp"].mode == 0o1777
    assert b"Package: libc6" in (found["var/lib/dpkg/status.d/libc6"].content or b"")


@pytest.mark.parametrize("part", ["certificates", "passwd.master"])
def test_a_base_that_lacks_something_is_refused(base: dict[str, Entry], part: str) -> None:
    with pytest.raises(ReleaseError):
        complete({name: entry for name, entry in base.items() if part not in name}, [])


def test_the_version_of_the_interpreter_is_that_of_its_package() -> None:
    assert python_of([a_package("libc6"), a_package("python3.11-minimal", "3.11.2-6+deb12u6")]) == "3.11.2"
    with pytest.raises(ReleaseError):
        python_of([a_package("python3", "3.11.2-1+b1")])


def test_a_package_is_an_input_of_the_build(tmp_path: Path) -> None:
    file = tmp_path / "util-linux.deb"
    file.write_bytes(b"content")
    package = Package(file, {"Package": "util-linux", "Version": "1:2.38-5", "Architecture": "arm64"}, "")
    assert package.material.uri == "pkg:deb/debian/util-linux@1%3A2.38-5?arch=arm64"
    assert package.material.sha256 == hashlib.sha256(b"content").hexdigest()


def a_tree(root: Path, order: int = 1) -> Path:
    for name in ["b/two", "a/one"][::order]:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / "b/two").chmod(0o700)
    (root / "a/one").chmod(0o600)
    (root / "link").symlink_to("/usr/bin/python3")
    return root


def test_a_layer_has_neither_times_nor_owners_nor_order_of_the_machine(tmp_path: Path) -> None:
    first, second = a_tree(tmp_path / "first"), a_tree(tmp_path / "second", -1)
    os.utime(second / "a/one", (1, 1))
    (second / "b/two").chmod(0o755)
    layers = []
    for number, root in enumerate((first, second)):
        file = tmp_path / f"{number}.tar.gz"
        layers.append(write_layer(file, {f"opt/{name}": entry for name, entry in entries_of(root)}, EPOCH, "COPY"))
    assert layers[0] == layers[1]
    content = gzip.decompress((tmp_path / "0.tar.gz").read_bytes())
    assert layers[0].diff_id == f"sha256:{hashlib.sha256(content).hexdigest()}"
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        heads = {head.name: head for head in archive}
    assert list(heads) == ["opt", "opt/a", "opt/a/one", "opt/b", "opt/b/two", "opt/link"]
    assert {(head.uid, head.gid, head.mtime) for head in heads.values()} == {(0, 0, EPOCH)}
    assert [oct(heads[name].mode) for name in ("opt/a/one", "opt/b/two")] == ["0o644", "0o755"]
    assert heads["opt/link"].linkname == "/usr/bin/python3"


def test_the_layer_changes_with_its_content(tmp_path: Path) -> None:
    item = write_layer(tmp_path / "1", {"a": Entry(0o644, content=b"1")}, EPOCH, "")
    assert item.diff_id != write_layer(tmp_path / "2", {"a": Entry(0o644, content=b"2")}, EPOCH, "").diff_id
    assert item.diff_id != write_layer(tmp_path / "3", {"a": Entry(0o755, content=b"1")}, EPOCH, "").diff_id
    assert item.diff_id != write_layer(tmp_path / "4", {"a": Entry(0o644, content=b"1")}, EPOCH + 1, "").diff_id


def test_a_layout_has_each_blob_under_its_digest_and_one_top(tmp_path: Path) -> None:
    layer_file = tmp_path / "layer"
    layer = write_layer(layer_file, {"a": Entry(0o644, content=b"1")}, EPOCH, "COPY")
    layout = Layout(tmp_path / "layout")
    assert layout.add_file(layer_file, oci.LAYER) == layer.blob
    config = oci.image_config("arm64", "2023-11-14T22:13:20Z", {"User": "1"}, [layer])
    layout.add(config)
    manifest = layout.add(oci.image_manifest(config, [layer], {}))
    index = layout.add(oci.image_index({"arm64": manifest}, {"a": "b"}))
    layout.close(index)
    for blob in (layout.root / "blobs/sha256").iterdir():
        assert blob.name == hashlib.sha256(blob.read_bytes()).hexdigest()
    [top] = json.loads((layout.root / "index.json").read_text())["manifests"]
    assert (top["digest"], top["mediaType"]) == (index.digest, oci.INDEX)
    [row] = json.loads(layout.blob(index).read_text())["manifests"]
    assert row["platform"] == {"architecture": "arm64", "os": "linux"}
    found = json.loads(layout.blob(manifest).read_text())
    assert [item["digest"] for item in found["layers"]] == [layer.blob.digest]
    assert json.loads(layout.blob(config.descriptor).read_text())["rootfs"]["diff_ids"] == [layer.diff_id]


def test_a_chart_is_packed_alike_whenever_helm_packs_it(tmp_path: Path) -> None:
    packed = []
    names = ["trellis/values.yaml", "trellis/Chart.yaml"]
    for number, order in enumerate((names, names[::-1])):
        with tarfile.open(tmp_path / f"{number}.tgz", "w:gz") as archive:
            for name in order:
                head = tarfile.TarInfo(name)
                head.size, head.mtime = 4, number
                archive.addfile(head, io.BytesIO(b"text"))
        repack(tmp_path / f"{number}.tgz", tmp_path / f"{number}.out", EPOCH)
        packed.append((tmp_path / f"{number}.out").read_bytes())
    assert packed[0] == packed[1]
    with tarfile.open(tmp_path / "0.out") as archive:
        assert archive.getnames() == ["trellis/Chart.yaml", "trellis/values.yaml"]


def attested(sha256: str, predicate: dict[str, str]) -> str:
    statement = {"subject": [{"name": "x", "digest": {"sha256": sha256}}], "predicate": predicate}
    return json.dumps({"payload": base64.b64encode(json.dumps(statement).encode()).decode()})


def test_only_attestations_of_the_artifact_count() -> None:
    output = "\n".join([attested("1" * 64, {"a": "1"}), attested("2" * 64, {"a": "2"})])
    assert predicates(output, "2" * 64) == [{"a": "2"}]
    assert predicates("", "2" * 64) == []
