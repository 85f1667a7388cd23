"""References, logins, documents and challenges of registries, as both of their readers have them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from trellis.oci.challenge import Authorization, basic
from trellis.oci.manifests import MalformedDocument, blob_of, is_index, platform_of, read_document, rows
from trellis.oci.references import credentials_for, parse_image, parse_location, registry_host
from trellis.registries.domain.wasm_images import chosen_manifest

SHA = f"sha256:{'ab' * 32}"
OTHER_SHA = f"sha256:{'cd' * 32}"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def config(**auths: Any) -> bytes:
    return json.dumps({"auths": auths}).encode()


def login(user: str) -> dict[str, str]:
    return {"username": user, "password": "p"}


@pytest.mark.parametrize("repository", ["a//b", "a/../b", "a/./b", "a/..", "a___b", "a/", "a..b"])
@pytest.mark.parametrize(
    "parse", [parse_image, lambda name: parse_location(f"oci://{name}")], ids=["image", "location"]
)
def test_no_part_of_a_repository_leads_elsewhere(parse: Any, repository: str) -> None:
    with pytest.raises(ValueError, match="reference"):
        parse(f"r.example/{repository}")


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("oci://r.example:5000/a/b", "https://r.example:5000/v2/a/b/manifests/latest"),
        ("oci+http://r.example/a:1", "http://r.example/v2/a/manifests/1"),
        (f"oci://r.example/a:1@{SHA}", f"https://r.example/v2/a/manifests/{SHA}"),
        ("oci://docker.io/library/a:1", "https://registry-1.docker.io/v2/library/a/manifests/1"),
        ("oci://index.docker.io/library/a:1", "https://registry-1.docker.io/v2/library/a/manifests/1"),
    ],
)
def test_a_manifest_is_requested_from_its_registry(location: str, url: str) -> None:
    reference = parse_location(location)
    assert reference.url(f"manifests/{reference.wanted}") == url
    if location.startswith("oci://"):
        assert parse_image(location.removeprefix("oci://")) == reference


@pytest.mark.parametrize(
    "image", ["user@r.example/a", "r.example?x=/a", "r.example", "r.example/a@sha256:ab", "oci://r/a"]
)
def test_a_reference_with_an_invalid_host_or_digest_is_no_image(image: str) -> None:
    with pytest.raises(ValueError, match="reference"):
        parse_image(image)


def test_hosts_are_compared_in_lower_case_and_without_default_ports() -> None:
    hosts = [
        "Registry.Local",
        "registry.local:80",
        "registry.local:443",
        "registry.local:5000",
        "localhost",
        "10.0.0.1:5",
    ]
    local = "registry.local"
    assert [registry_host(host) for host in hosts] == [local, local, local, f"{local}:5000", "localhost", "10.0.0.1:5"]


@pytest.mark.parametrize("host", ["", "http://r", "r/a", "r:", "r:port", "me@r", "*.r", "-r", "r:5000\n"])
def test_an_invalid_registry_host_is_an_error(host: str) -> None:
    with pytest.raises(ValueError, match="registry"):
        registry_host(host)


def test_the_longest_path_of_a_docker_configuration_counts() -> None:
    auths = config(**{"r.example/a": login("a"), "r.example": login("all"), "r.example/a/b": login("b")})
    found = {name: credentials_for(parse_image(f"r.example/{name}"), auths) for name in ("a/b", "a/c", "ab", "x")}
    assert found == {"a/b": "b:p", "a/c": "a:p", "ab": "all:p", "x": "all:p"}
    assert credentials_for(parse_image("r.example/x"), config(**{"r.example/a": login("a")})) is None
    assert credentials_for(parse_image("r.example/a"), config(**{"r.example:5000": login("a")})) is None


def test_without_paths_the_first_login_of_the_registry_counts() -> None:
    auths = config(**{"other.example": login("other"), "r.example/a": login("a"), "r.example": login("all")})
    assert credentials_for(parse_image("r.example/x"), auths, by_path=False) == "a:p"
    assert credentials_for(parse_image("another.example/x"), auths, by_path=False) is None


@pytest.mark.parametrize(
    "name", ["docker.io", "index.docker.io", "https://index.docker.io/v1/", "registry-1.docker.io"]
)
@pytest.mark.parametrize("by_path", [True, False])
def test_docker_hub_has_several_names(name: str, by_path: bool) -> None:
    auths = config(**{name: {"auth": base64.b64encode(b"u:p").decode()}})
    assert credentials_for(parse_image("docker.io/library/a"), auths, by_path=by_path) == "u:p"
    assert credentials_for(parse_image("r.example/library/a"), auths, by_path=by_path) is None


@pytest.mark.parametrize(
    "content",
    [b"[]", b"", b'{"auths": 5}', config(r=5), config(r={"auth": "%"}), config(r=login("\ud800"))],
)
def test_an_invalid_docker_configuration_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match="Docker configuration"):
        credentials_for(parse_image("r/a"), content)


@pytest.mark.parametrize(
    ("document", "content_type", "index"),
    [
        ({"mediaType": INDEX}, "", True),
        ({}, f"{INDEX} ; charset=utf-8", True),
        ({"manifests": []}, "", True),
        ({"manifests": [], "layers": []}, MANIFEST, False),
        ({"layers": []}, MANIFEST, False),
    ],
)
def test_an_index_is_distinguished_from_a_manifest(document: dict[str, Any], content_type: str, index: bool) -> None:
    assert is_index(document, content_type) is index


@pytest.mark.parametrize("found", [5, "x", [5], {"a": 1}])
def test_rows_that_are_none_are_malformed(found: object) -> None:
    with pytest.raises(MalformedDocument):
        rows({"layers": found}, "layers")
    with pytest.raises(MalformedDocument):
        chosen_manifest({"manifests": found})


@pytest.mark.parametrize("digest", [None, "latest", "../x", f"sha512:{'ab' * 64}", f"{SHA}\n"])
def test_a_blob_has_a_digest_of_sha256(digest: object) -> None:
    with pytest.raises(MalformedDocument):
        blob_of({"digest": digest})


def test_half_a_character_goes_nowhere() -> None:
    row = read_document(b'{"platform": {"os": "\\ud800", "architecture": "wasm"}}')
    assert platform_of(row) == ("?", "wasm")


def test_the_module_of_an_index_is_the_one_for_wasm_or_the_only_one() -> None:
    wasm = {"digest": SHA, "platform": {"os": "wasi", "architecture": "wasm"}}
    native = {"digest": OTHER_SHA, "platform": {"os": "linux", "architecture": "amd64"}}
    about = {"digest": OTHER_SHA, "annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    assert chosen_manifest({"manifests": [native, wasm, about]}) == SHA
    assert chosen_manifest({"manifests": [native, about]}) == native["digest"]
    for unclear in ([], [native, native], [wasm, wasm]):
        with pytest.raises(ValueError, match="wasm"):
            chosen_manifest({"manifests": unclear})


def test_a_login_goes_to_the_token_server_and_its_token_to_the_registry() -> None:
    authorization = Authorization("team/a", "me:hunter2")
    assert authorization.headers() == {}
    request = authorization.challenged('Bearer realm="https://t.example/token?x=1",service="s"')
    assert request is not None
    assert request.url == "https://t.example/token?x=1&service=s&scope=repository%3Ateam%2Fa%3Apull"
    assert request.headers == {"Authorization": basic("me:hunter2")}
    assert authorization.headers() == {}
    authorization.granted(b'{"access_token": "t"}')
    assert authorization.headers() == {"Authorization": "Bearer t"}
    assert "hunter2" not in repr(authorization)


@pytest.mark.parametrize(
    ("challenge", "credentials"), [("Basic", None), ("Negotiate", "a:b"), ("Bearer service=s", "a:b")]
)
def test_a_challenge_that_cannot_be_met_changes_nothing(challenge: str, credentials: str | None) -> None:
    authorization = Authorization("team/a", credentials)
    assert authorization.challenged(challenge) is None
    assert authorization.headers() == {}


def test_a_basic_challenge_is_met_with_the_login() -> None:
    authorization = Authorization("team/a", "a:b")
    assert authorization.challenged('Basic realm="r"') is None
    assert authorization.headers() == {"Authorization": basic("a:b")}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"token": 5}', b'{"token": "a\\nb"}', '{"token": "é"}'.encode()])
def test_a_token_is_what_a_header_can_have(body: bytes) -> None:
    authorization = Authorization("team/a", None)
    with pytest.raises(MalformedDocument):
        authorization.granted(body)
    assert authorization.headers() == {}
