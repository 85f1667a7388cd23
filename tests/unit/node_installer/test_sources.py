"""Sources of shims, over real connections: a faulty one is refused, and the node stays unchanged."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from node_installer.domain.errors import InstallError
from node_installer.fetch import archive
from node_installer.fetch.oci import Registry as OciRegistry
from node_installer.fetch.oci import login_for, parse_reference
from node_installer.fetch.web import Web
from support.suite.naming import lacking
from trellis.installer_api.result import PERMANENT, FailureReason, InstallResult
from unit.node_installer.servers import Answer, Registry, certificates, serving
from unit.node_installer.world import ARCH, World, a_shim, a_spec, a_wanted_shim, a_world, sha256, snapshot

NAME = "containerd-shim-spin"
OTHER_ARCH = "arm64" if ARCH == "amd64" else "amd64"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def a_tar(*members: tuple[tarfile.TarInfo | str, bytes], mode: Any = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for member, content in members:
            info = tarfile.TarInfo(member) if isinstance(member, str) else member
            if info.isreg():
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return buffer.getvalue()


def a_zip(*members: tuple[zipfile.ZipInfo | str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive_file:
        for member, content in members:
            archive_file.writestr(member, content)
    return buffer.getvalue()


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def install_from(world: World, source: dict[str, Any], tls: Path | None = None, **fields: Any) -> InstallResult:
    wanted = {"name": "spin", "handler": "spin", "owner": "shim/spin", "sources": [{"arch": ARCH, **source}]}
    return world.perform("install", a_spec(wanted, **fields), ca_file=tls / "ca.pem" if tls else None)


def refused(tmp_path: Path, source: dict[str, Any], tls: Path | None = None, **fields: Any) -> InstallResult:
    """Install, and see that the node was not touched."""
    world = a_world(tmp_path)
    before = snapshot(world.root)
    result = install_from(world, source, tls, **fields)
    assert not result.ok
    assert snapshot(world.root) == before
    assert world.runtime.restarts == 0
    return result


GOOD = {
    "tar.gz": a_tar(("README.md", b"x"), (NAME, a_shim())),
    "tar.zst": zstd.compress(a_tar(("./bin/" + NAME, a_shim()), mode="w")),
    "tar.xz": a_tar((NAME, a_shim()), mode="w:xz"),
    "tar": a_tar((NAME, a_shim()), mode="w"),
    "zip": a_zip(("docs/README", b"x"), ("bin/" + NAME, a_shim())),
    "bare": a_shim(),
    "versioned name": a_tar((NAME + "-v2", a_shim())),
    "signed, as by runwasi": a_tar(
        ("./" + NAME + "-v1.sig", b"x"), ("./" + NAME + "-v1.pem", b"x"), ("./" + NAME + "-v1", a_shim())
    ),
}


@pytest.mark.parametrize("kind", GOOD)
def test_every_kind_of_archive_is_installed(kind: str, tls: Path, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    with serving(lambda _: Answer(body=GOOD[kind]), tls) as server:
        source = {"location": f"{server.url}/shim", "sha256": sha256(GOOD[kind]), "binarySha256": sha256(a_shim())}
        result = install_from(world, source, tls)
    assert result.ok, result.message
    assert world.disk.read("/opt/trellis/bin/" + NAME) == a_shim()
    assert (world.root / "opt/trellis/bin" / NAME).stat().st_mode & 0o777 == 0o755


def of_a_large_window(content: bytes) -> bytes:
    """Compress as `zstd --ultra -22` does from a pipe: unpacking wants 128 MiB, however small the content is."""
    parameter = zstd.CompressionParameter
    compressor = zstd.ZstdCompressor(options={parameter.window_log: 27, parameter.compression_level: 1})
    return compressor.compress(content, mode=compressor.FLUSH_BLOCK) + compressor.flush()


BAD = {
    "leaves upwards": (a_tar(("../../etc/cron.d/x", b"x"), (NAME, a_shim())), FailureReason.UNSAFE_ARCHIVE),
    "absolute": (a_tar(("/etc/cron.d/x", b"x"), (NAME, a_shim())), FailureReason.UNSAFE_ARCHIVE),
    "zip leaves upwards": (a_zip(("../x", b"x"), (NAME, a_shim())), FailureReason.UNSAFE_ARCHIVE),
    "symbolic link": (a_tar((special(NAME, tarfile.SYMTYPE, "/etc/shadow"), b"")), FailureReason.UNSAFE_ARCHIVE),
    "hard link": (
        a_tar(("x", b"x"), (special(NAME, tarfile.LNKTYPE, "x"), b"")), FailureReason.UNSAFE_ARCHIVE
    ),
    "device": (a_tar((special(NAME, tarfile.CHRTYPE), b"")), FailureReason.UNSAFE_ARCHIVE),
    "fifo": (a_tar((special(NAME, tarfile.FIFOTYPE), b"")), FailureReason.UNSAFE_ARCHIVE),
    "cut gzip": (GOOD["tar.gz"][:-40], FailureReason.UNSAFE_ARCHIVE),
    "cut zstd": (GOOD["tar.zst"][:-20], FailureReason.UNSAFE_ARCHIVE),
    "cut xz": (GOOD["tar.xz"][:150], FailureReason.UNSAFE_ARCHIVE),
    "cut zip": (GOOD["zip"][:-30], FailureReason.UNSAFE_ARCHIVE),
    "no shim in it": (a_tar(("README.md", b"x")), FailureReason.SHIM_NOT_IN_ARCHIVE),
    "several shims": (
        a_tar(("containerd-shim-a", a_shim()), ("containerd-shim-b", a_shim())), FailureReason.SHIM_NOT_IN_ARCHIVE
    ),
    "web page": (b"<html>Sign in</html>", FailureReason.WRONG_ARCHITECTURE),
    "nothing": (b"", FailureReason.WRONG_ARCHITECTURE),
    "zip of lzma": (a_zip((NAME, a_shim()), compression=zipfile.ZIP_LZMA), FailureReason.UNSAFE_ARCHIVE),
    "other machine": (a_tar((NAME, a_shim(arch=OTHER_ARCH))), FailureReason.WRONG_ARCHITECTURE),
}  # fmt: skip


def of_a_large_dictionary(content: bytes) -> bytes:
    """Compress as `xz --lzma2=dict=256MiB` does."""
    return lzma.compress(content, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 256 << 20, "mode": lzma.MODE_FAST}])


@pytest.mark.parametrize(
    ("pack", "advice"),
    [(of_a_large_window, "zstd -19"), (of_a_large_dictionary, "xz -9")],
    ids=["zstd", "xz"],
)
def test_an_archive_that_needs_more_memory_than_the_job_has_is_refused(
    pack: Callable[[bytes], bytes], advice: str, tmp_path: Path
) -> None:
    body = pack(a_tar((NAME, a_shim()), mode="w"))
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "archive").write_bytes(body)
    result = refused(tmp_path, {"location": "/archive", "sha256": sha256(body)})
    assert result.reason is FailureReason.UNSAFE_ARCHIVE
    assert advice in result.message


def test_xz_of_the_highest_level_and_of_several_streams_is_unpacked(tmp_path: Path) -> None:
    tar = a_tar((NAME, a_shim()), ("padding", bytes(3 << 20)), mode="w")
    halves = [lzma.compress(half, preset=9) for half in (tar[:5000], tar[5000:])]
    packed = tmp_path / "packed"
    packed.write_bytes(halves[0] + bytes(4) + halves[1])
    assert archive.extract_shim(packed, tmp_path / "shim", member=None, names=()) == NAME
    assert (tmp_path / "shim").read_bytes() == a_shim()


@pytest.mark.parametrize("kind", BAD)
def test_every_bad_archive_is_refused(kind: str, tls: Path, tmp_path: Path) -> None:
    body, reason = BAD[kind]
    with serving(lambda _: Answer(body=body), tls) as server:
        result = refused(tmp_path, {"location": f"{server.url}/shim", "sha256": sha256(body)}, tls)
    assert result.reason is reason, result.message
    assert reason in PERMANENT


def test_all_shims_that_cannot_be_had_are_named_and_no_other(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    before = snapshot(world.root)
    good = a_wanted_shim(world.image, handler="good", digest="d0")
    bad = a_wanted_shim(world.image, handler="bad", content=b"<html>", digest="d1")
    wrong = a_wanted_shim(world.image, handler="wrong", digest="d2")
    wrong["sources"][0]["sha256"] = "0" * 64
    result = world.install(bad, good, wrong)
    assert result.reason is FailureReason.WRONG_ARCHITECTURE
    assert [(shim.handler, shim.digest) for shim in result.shims if shim.problem] == [("bad", "d1"), ("wrong", "d2")]
    assert "bad: " in result.message
    assert "SHA-256" in result.message
    assert snapshot(world.root) == before
    broken = a_wanted_shim(world.image, handler="broken", content=a_shim("broken"), digest="d3")
    result = world.install(good, broken)
    assert result.reason is FailureReason.SHIM_NOT_EXECUTABLE
    assert [(shim.handler, shim.digest, bool(shim.problem)) for shim in result.shims] == [("broken", "d3", True)]
    assert snapshot(world.root) == before


def test_a_zip_with_a_link_in_the_shims_place_is_refused(tls: Path, tmp_path: Path) -> None:
    info = zipfile.ZipInfo(NAME)
    info.external_attr = 0o120777 << 16
    body = a_zip((info, b"/etc/shadow"))
    with serving(lambda _: Answer(body=body), tls) as server:
        result = refused(tmp_path, {"location": f"{server.url}/shim", "sha256": sha256(body)}, tls)
    assert result.reason is FailureReason.UNSAFE_ARCHIVE


def test_an_archive_that_unpacks_to_too_much_is_refused(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_SHIM_BYTES", 1000)
    monkeypatch.setattr(archive, "_BLOCK", 100)
    body = a_tar((NAME, a_shim() + bytes(5000)))
    with serving(lambda _: Answer(body=body), tls) as server:
        result = refused(tmp_path, {"location": f"{server.url}/shim", "sha256": sha256(body)}, tls)
    assert result.reason is FailureReason.UNSAFE_ARCHIVE


@pytest.mark.parametrize("key", ["sha256", "binarySha256"])
def test_a_wrong_checksum_is_refused(key: str, tls: Path, tmp_path: Path) -> None:
    with serving(lambda _: Answer(body=GOOD["tar.gz"]), tls) as server:
        result = refused(tmp_path, {"location": f"{server.url}/shim", key: "0" * 64}, tls)
    assert result.reason is FailureReason.CHECKSUM_MISMATCH
    assert "0" * 64 in result.message


@pytest.mark.parametrize("key", ["sha256", "binarySha256"])
def test_a_file_of_the_installers_image_with_another_checksum_is_refused(key: str, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    before = snapshot(world.root)
    wanted = a_wanted_shim(world.image)
    wanted["sources"][0][key] = "0" * 64
    result = world.install(wanted)
    assert result.reason is FailureReason.CHECKSUM_MISMATCH
    assert snapshot(world.root) == before


def test_a_missing_checksum_is_refused_before_anything_is_fetched(tls: Path, tmp_path: Path) -> None:
    with serving(lambda _: Answer(body=a_shim()), tls) as server:
        result = refused(tmp_path, {"location": f"{server.url}/shim"}, tls)
        assert not server.requests
    assert result.reason is FailureReason.CHECKSUM_MISSING


@pytest.mark.parametrize(
    "location",
    [
        "https://example.com/shim.tgz?@sha256:",
        f"https://example.com/shim.tgz?@sha256:{'a' * 64}",
        "oci://registry.example/team/shim@sha256:abc",
        f"oci://registry.example/team/shim@sha256:{'a' * 65}",
        "oci://registry.example/team/shim:latest",
    ],
)
def test_a_location_that_only_looks_like_a_digest_is_no_checksum(location: str, tmp_path: Path) -> None:
    assert refused(tmp_path, {"location": location}).reason is FailureReason.CHECKSUM_MISSING


def test_a_reference_with_its_whole_digest_needs_no_checksum(tmp_path: Path) -> None:
    result = refused(tmp_path, {"location": f"oci://127.0.0.1:9/team/shim:1@sha256:{'a' * 64}"})
    assert result.reason is FailureReason.DOWNLOAD_FAILED


def test_a_missing_checksum_can_be_allowed(tls: Path, tmp_path: Path) -> None:
    with serving(lambda _: Answer(body=a_shim()), tls) as server:
        result = install_from(a_world(tmp_path), {"location": server.url + "/s"}, tls, requireChecksum=False)
    assert result.ok


def test_a_cut_download_is_tried_again_and_then_refused(tls: Path, tmp_path: Path) -> None:
    body = GOOD["bare"]
    with serving(lambda _: Answer(body=body, cut=30), tls) as server:
        result = refused(tmp_path, {"location": f"{server.url}/shim", "sha256": sha256(body)}, tls)
        assert len(server.requests) == 3
    assert result.reason is FailureReason.DOWNLOAD_FAILED
    assert "cut" in result.message


@pytest.mark.parametrize("requested", ["", "3600", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_a_passing_failure_is_passed_however_long_the_server_asks_to_wait(
    requested: str, tls: Path, tmp_path: Path
) -> None:
    answers = iter([Answer(503, headers={"Retry-After": requested}), Answer(body=a_shim())])
    with serving(lambda _: next(answers), tls) as server:
        source = {"location": f"{server.url}/shim", "sha256": sha256(a_shim())}
        assert install_from(a_world(tmp_path), source, tls).ok


@pytest.mark.parametrize("status", [404, 403, 500])
def test_a_server_that_refuses_is_named(status: int, tls: Path, tmp_path: Path) -> None:
    with serving(lambda _: Answer(status), tls) as server:
        result = refused(tmp_path, {"location": f"{server.url}/shim", "sha256": "0" * 64}, tls)
    assert str(status) in result.message
    assert "/shim" in result.message


def test_a_certificate_of_an_unknown_ca_is_refused(tls: Path, tmp_path: Path) -> None:
    with serving(lambda _: Answer(body=a_shim()), tls) as server:
        result = refused(tmp_path, {"location": f"{server.url}/shim", "sha256": sha256(a_shim())})
    assert result.reason is FailureReason.DOWNLOAD_FAILED
    assert "CA file" in result.message


def test_plain_http_is_refused_unless_allowed(tmp_path: Path) -> None:
    with serving(lambda _: Answer(body=a_shim())) as server:
        source = {"location": f"{server.url}/shim", "sha256": sha256(a_shim())}
        assert refused(tmp_path / "1", source).reason is FailureReason.INSECURE_SOURCE
        assert not server.requests
        assert install_from(a_world(tmp_path / "2"), source, allowHttp=True).ok


def test_a_redirect_to_plain_http_is_refused(tls: Path, tmp_path: Path) -> None:
    with (
        serving(lambda _: Answer(body=a_shim())) as plain,
        serving(lambda _: Answer(302, headers={"Location": f"{plain.url}/x"}), tls) as server,
    ):
        result = refused(tmp_path, {"location": f"{server.url}/shim", "sha256": sha256(a_shim())}, tls)
        assert not plain.requests
    assert result.reason is FailureReason.INSECURE_SOURCE


def test_credentials_of_an_address_go_to_its_host_only_and_into_no_message(tls: Path, tmp_path: Path) -> None:
    with (
        serving(lambda _: Answer(404), tls) as far,
        serving(lambda _: Answer(302, headers={"Location": f"{far.url}/x"}), tls) as server,
    ):
        location = server.url.replace("https://", "https://me:hunter2@") + "/shim"
        result = refused(tmp_path, {"location": location, "sha256": "0" * 64}, tls)
        assert server.requests[0].headers["authorization"].startswith("Basic ")
        assert "authorization" not in far.requests[0].headers
    assert "hunter2" not in result.to_line()


@pytest.mark.parametrize("given", ["http://user:pass@127.0.0.1:1/", "127.0.0.1:1"])
def test_a_proxy_that_cannot_be_reached_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", given)
    with pytest.raises(InstallError) as error:
        Web(pause=0).download("https://example.invalid/x", tmp_path / "x")
    assert lacking(error.value.message, "https://example.invalid/x", "proxy 127.0.0.1:1") == []
    assert "pass" not in error.value.message
    monkeypatch.setenv("NO_PROXY", "example.invalid")
    with pytest.raises(InstallError) as error:
        Web(pause=0).download("https://example.invalid/x", tmp_path / "x")
    assert "proxy" not in error.value.message


def test_an_address_that_is_none_is_refused_by_its_text(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match=r"https://\[::1"):
        Web(pause=0).download("https://[::1/x", tmp_path / "x")


def test_a_proxy_is_used_and_networks_of_no_proxy_are_not(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = Web(ca_file=tls / "ca.pem")
    with serving(lambda _: Answer(body=a_shim()), tls) as server, serving(lambda _: Answer(500)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("http://", "http://user:pass@"))
        assert web.download(f"{server.url}/shim", tmp_path / "a") == sha256(a_shim())
        assert [request.path for request in proxy.requests] == [f"CONNECT {server.host}"]
        assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")
        monkeypatch.setenv("NO_PROXY", "example.org, 127.0.0.0/8")
        assert web.download(f"{server.url}/shim", tmp_path / "b") == sha256(a_shim())
        assert len(proxy.requests) == 1


def test_a_path_in_the_image_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = refused(tmp_path, {"location": "/assets/nothing", "sha256": "0" * 64})
    assert result.reason is FailureReason.NO_SOURCE


def test_a_platform_without_a_source_is_named(tmp_path: Path) -> None:
    result = refused(tmp_path, {"location": "/assets/x", "arch": OTHER_ARCH})
    assert result.reason is FailureReason.NO_SOURCE
    assert OTHER_ARCH in result.message


# --- registries ---


def registry_world(registry: Registry, tls: Path, tmp_path: Path, reference: str, **settings: Any) -> InstallResult:
    world = a_world(tmp_path)
    before = snapshot(world.root)
    with serving(registry.respond, tls) as server:
        registry.url = server.url
        wanted = {
            "name": "spin",
            "owner": "shim/spin",
            "sources": [{"location": f"oci://{server.host}/team/shim{reference}"}],
        }
        result = world.perform("install", a_spec(wanted, requireChecksum=False), ca_file=tls / "ca.pem", **settings)
    if result.ok:
        assert world.disk.read("/opt/trellis/bin/" + NAME) == a_shim()
    else:
        assert snapshot(world.root) == before
    return result


TAR = "application/vnd.oci.image.layer.v1.tar+gzip"


def layered(*layers: bytes) -> Registry:
    registry = Registry()
    registry.manifest("1.0", *(registry.blob(layer, TAR) for layer in layers))
    return registry


def test_an_artifact_with_one_file(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    registry.manifest("1.0", registry.blob(a_shim(), title=NAME))
    assert registry_world(registry, tls, tmp_path, ":1.0").ok


def test_an_artifact_with_several_files_and_an_archive(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    registry.manifest("1.0", registry.blob(b"x", title="LICENSE"), registry.blob(GOOD["tar.gz"], title=f"{NAME}.tgz"))
    assert registry_world(registry, tls, tmp_path, ":1.0").ok


def test_an_image_of_several_platforms(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    own = registry.manifest(None, registry.blob(a_tar((f"assets/{NAME}", a_shim())), TAR))
    other = registry.manifest(None, registry.blob(a_tar((f"assets/{NAME}", a_shim(arch=OTHER_ARCH))), TAR))
    digest = registry.index("1.0", {OTHER_ARCH: other, ARCH: own})
    assert registry_world(registry, tls, tmp_path / "tag", ":1.0").ok
    assert registry_world(registry, tls, tmp_path / "digest", f":old@{digest}").ok


def test_the_topmost_layer_wins_as_in_a_container(tls: Path, tmp_path: Path) -> None:
    registry = layered(a_tar((NAME, a_shim("old"))), a_tar((NAME, a_shim())), a_tar(("etc/x", b"x")))
    assert registry_world(registry, tls, tmp_path, ":1.0").ok


def test_a_file_that_an_upper_layer_removed_is_not_found(tls: Path, tmp_path: Path) -> None:
    registry = layered(a_tar((f"assets/{NAME}", a_shim())), a_tar((f"assets/.wh.{NAME}", b"")))
    assert registry_world(registry, tls, tmp_path, ":1.0").reason is FailureReason.SHIM_NOT_IN_ARCHIVE


def test_a_missing_platform_is_reported_with_the_available_ones(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    registry.index("1.0", {OTHER_ARCH: registry.manifest(None, registry.blob(a_shim(), title=NAME))})
    result = registry_world(registry, tls, tmp_path, ":1.0")
    assert result.reason is FailureReason.NO_SOURCE
    assert f"linux/{OTHER_ARCH}" in result.message


def test_a_blob_that_was_changed_is_refused(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    layer = registry.blob(a_shim(), title=NAME)
    registry.manifest("1.0", layer)
    registry.blobs[layer["digest"]] = a_shim("evil")
    assert registry_world(registry, tls, tmp_path, ":1.0").reason is FailureReason.CHECKSUM_MISMATCH


def test_a_manifest_that_was_changed_is_refused(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    digest = registry.manifest("1.0", registry.blob(a_shim(), title=NAME))
    registry.manifest("1.0", registry.blob(a_shim("evil"), title=NAME))
    registry.documents[digest] = registry.documents["1.0"]
    assert registry_world(registry, tls, tmp_path, f"@{digest}").reason is FailureReason.CHECKSUM_MISMATCH


@pytest.mark.parametrize("form", ["auth", "username"])
def test_a_pull_secret_opens_a_private_registry(form: str, tls: Path, tmp_path: Path) -> None:
    registry = Registry(login="me:hunter2")
    registry.manifest("1.0", registry.blob(a_shim(), title=NAME))
    world = a_world(tmp_path)
    secret = tmp_path / "secret"
    secret.mkdir()
    with serving(registry.respond, tls) as server:
        registry.url = server.url
        entry = {"auth": "bWU6aHVudGVyMg=="} if form == "auth" else {"username": "me", "password": "hunter2"}
        (secret / ".dockerconfigjson").write_text(json.dumps({"auths": {server.host: entry}}))
        wanted = {"name": "spin", "sources": [{"location": f"oci://{server.host}/team/shim:1.0"}]}
        spec = a_spec(wanted, requireChecksum=False)
        result = world.perform("install", spec, ca_file=tls / "ca.pem", docker_config=secret)
    assert result.ok, result.message


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
def test_a_challenge_of_another_host_that_a_registry_redirects_to_gets_no_login(
    scheme: str, tls: Path, tmp_path: Path
) -> None:
    web = Web(ca_file=tls / "ca.pem")
    with serving(lambda _: Answer(body=b'{"token": "x"}'), tls) as tokens:
        challenge = {"WWW-Authenticate": f'{scheme} realm="{tokens.url}/token"'}
        with serving(lambda _: Answer(401, headers=challenge), tls) as store:
            moved = {"Location": f"{store.url}/x"}
            with serving(lambda _: Answer(307, headers=moved), tls) as server:
                reference = parse_reference(f"oci://{server.host}/team/shim:1.0")
                with pytest.raises(InstallError) as refused:
                    OciRegistry(web, reference, "me:hunter2").fetch("amd64", tmp_path, None, ())
            assert refused.value.reason is FailureReason.DOWNLOAD_FAILED
            assert "hunter2" not in str(refused.value)
        requests = [*tokens.requests, *store.requests, *server.requests]
    assert tokens.requests == []
    assert all("authorization" not in request.headers for request in requests)


def test_without_credentials_a_private_registry_reports_it(tls: Path, tmp_path: Path) -> None:
    result = registry_world(Registry(login="me:x"), tls, tmp_path, ":1.0")
    assert result.reason is FailureReason.DOWNLOAD_FAILED
    assert "credentials" in result.message or "token" in result.message


def test_plain_http_for_a_registry_must_be_enabled(tmp_path: Path) -> None:
    registry = Registry()
    registry.manifest("1.0", registry.blob(a_shim(), title=NAME))
    with serving(registry.respond) as server:
        source = {"location": f"oci+http://{server.host}/team/shim:1.0"}
        result = refused(tmp_path / "1", source, requireChecksum=False)
        assert result.reason is FailureReason.INSECURE_SOURCE
        assert install_from(a_world(tmp_path / "2"), source, requireChecksum=False, allowHttp=True).ok


def test_a_broken_pull_secret_is_named() -> None:
    with pytest.raises(InstallError, match="Docker configuration"):
        login_for(parse_reference("oci://r/a"), b"[]")
