"""The signatures that permit an installation: by keys that the platform names, and no others."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from provisioner.domain.signatures import SIGNATURE_TYPE, Keys
from trellis.installer_api.spec import WantedShim
from trellis.provisioning.shims import Refusal, view_shim, wanted_shim_for

Manifest = dict[str, Any]
Sign = Callable[[bytes], bytes]

ARCHIVE = b"what a shim's archive holds"
OTHER = b"what somebody else made"
DIGEST = f"sha256:{hashlib.sha256(b'manifest').hexdigest()}"
EC = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
COSIGN = Path(__file__).parents[2] / "data" / "cosign"
STRANGER = ec.generate_private_key(ec.SECP256R1())


def pem(key: Any) -> str:
    return str(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


def by_ec(data: bytes, key: ec.EllipticCurvePrivateKey = EC) -> str:
    return base64.b64encode(key.sign(data, ec.ECDSA(SHA256()))).decode()


def by_rsa(data: bytes) -> str:
    return base64.b64encode(RSA.sign(data, padding.PKCS1v15(), SHA256())).decode()


def shim(**fetch: Any) -> Manifest:
    return {
        "metadata": {"name": "spin", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "fetchStrategy": fetch,
            "runtimeClass": {"name": "spin", "handler": "spin"},
            "rolloutStrategy": {"type": "recreate"},
        },
    }


def archive(signature: str | None = None, content: bytes = ARCHIVE) -> Manifest:
    found = {"location": "https://example.com/shim.tar.gz", "sha256": hashlib.sha256(content).hexdigest()}
    return shim(anonHttp=found | ({"signature": signature} if signature else {}))


def payload(digest: str = DIGEST, kind: str = SIGNATURE_TYPE) -> bytes:
    critical = {
        "identity": {"docker-reference": "registry.example/team/shim"},
        "image": {"docker-manifest-digest": digest},
        "type": kind,
    }
    return json.dumps({"critical": critical, "optional": None}).encode()


def image(signed: bytes | None, signature: str) -> Manifest:
    oci = {"image": f"registry.example/team/shim:1@{DIGEST}", "signature": signature}
    return shim(oci=oci | ({"signedPayload": base64.b64encode(signed).decode()} if signed is not None else {}))


def installed(manifest: Manifest, *keys: Any, require_checksum: bool = True, arch: str = "amd64") -> bool:
    """Say whether it would be installed; if not, that this is because of the missing signature."""
    view = Keys.parse("".join(pem(key) for key in keys)).judge(view_shim(manifest))
    assert not view.invalid
    wanted = wanted_shim_for(view, arch, require_checksum=require_checksum)
    assert isinstance(wanted, WantedShim) or wanted is Refusal.UNSIGNED
    return isinstance(wanted, WantedShim)


def test_without_keys_nothing_has_to_be_signed() -> None:
    assert installed(archive())
    assert installed(archive("bm9uc2Vuc2U="))


@pytest.mark.parametrize(("signature", "key"), [(by_ec(ARCHIVE), EC), (by_rsa(ARCHIVE), RSA)], ids=["ECDSA", "RSA"])
def test_a_signature_of_any_accepted_key_permits_the_installation(signature: str, key: Any) -> None:
    assert installed(archive(signature), key)
    assert installed(archive(signature), STRANGER, key)
    assert not installed(archive(signature), STRANGER)


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(archive(), id="no signature"),
        pytest.param(archive(by_ec(OTHER)), id="of something else"),
        pytest.param(archive(by_ec(ARCHIVE, STRANGER)), id="a stranger's"),
        pytest.param(archive("AAAA"), id="no signature at all"),
        pytest.param(archive("AAA"), id="no base64"),
        pytest.param(shim(image={"path": "/shims/spin", "sha256": "ab" * 32}), id="in the installer's image"),
    ],
)
def test_a_shim_that_no_key_signed_is_not_installed(manifest: Manifest) -> None:
    assert not installed(manifest, EC, RSA)


def test_a_source_without_a_checksum_cannot_be_signed() -> None:
    manifest = archive(by_ec(ARCHIVE))
    del manifest["spec"]["fetchStrategy"]["anonHttp"]["sha256"]
    assert not installed(manifest, EC, require_checksum=False)


@pytest.mark.parametrize("checksum", ["no checksum", "ab", "sha256:"])
def test_a_checksum_that_is_none_is_the_shims_own_fault(checksum: str) -> None:
    platform = {"os": "linux", "arch": "amd64", "location": "https://example.com/x", "sha256": checksum}
    view = Keys.parse(pem(EC)).judge(view_shim(shim(platforms=[platform | {"signature": by_ec(ARCHIVE)}])))
    assert "sha256" in view.invalid


def test_the_source_of_each_architecture_is_signed_for_itself() -> None:
    def platform(arch: str, content: bytes) -> Manifest:
        sha256 = hashlib.sha256(content).hexdigest()
        where = {"os": "linux", "arch": arch, "location": f"https://example.com/{arch}"}
        return where | {"sha256": sha256, "signature": by_ec(ARCHIVE)}

    manifest = shim(platforms=[platform("amd64", ARCHIVE), platform("arm64", OTHER)])
    assert installed(manifest, EC, arch="amd64")
    assert not installed(manifest, EC, arch="arm64")


def test_a_binary_in_the_installers_image_may_be_signed_too() -> None:
    sha256 = hashlib.sha256(ARCHIVE).hexdigest()
    assert installed(shim(image={"path": "/shims/spin", "sha256": sha256, "signature": by_ec(ARCHIVE)}), EC)


def test_an_image_is_signed_by_a_payload_that_names_its_digest() -> None:
    assert installed(image(payload(), by_ec(payload())), EC)


@pytest.mark.parametrize(
    "signed",
    [
        pytest.param(payload("sha256:" + "0" * 64), id="another image's"),
        pytest.param(payload(kind="a delivery note"), id="no signature of an image"),
        pytest.param(b"{}", id="without digest"),
        pytest.param(b"[1]", id="a list"),
        pytest.param(b"\xff", id="no JSON"),
        pytest.param(None, id="none"),
    ],
)
def test_a_payload_of_something_else_lets_nothing_in(signed: bytes | None) -> None:
    assert not installed(image(signed, by_ec(signed or DIGEST.encode())), EC)


def cosigned(manifest: Manifest) -> bool:
    key = (COSIGN / "cosign.pub").read_text(encoding="utf-8")
    return isinstance(
        wanted_shim_for(Keys.parse(key).judge(view_shim(manifest)), "amd64", require_checksum=True), WantedShim
    )


def test_a_shim_signed_by_cosign_3_is_installed() -> None:
    """By the commands of docs/shims.md; the blob is ``hello`` and a newline."""
    bundle = json.loads((COSIGN / "blob.bundle.json").read_bytes())
    signature = bundle["messageSignature"]["signature"]
    assert cosigned(archive(signature, b"hello\n"))
    assert not cosigned(archive(signature, b"hello"))


def test_the_image_that_cosign_3_signed_is_installed() -> None:
    signed = (COSIGN / "image.payload.json").read_bytes()
    digest = json.loads(signed)["critical"]["image"]["docker-manifest-digest"]
    signature = (COSIGN / "image.signature").read_text(encoding="utf-8").strip()
    manifest = image(signed, signature)
    manifest["spec"]["fetchStrategy"]["oci"]["image"] = f"localhost:5055/shims/spin@{digest}"
    assert cosigned(manifest)
    assert not cosigned(image(signed, signature)), "another image's"


def test_an_unsigned_payload_permits_nothing() -> None:
    assert not installed(image(payload(), by_ec(b"another payload")), EC)


@given(st.text(alphabet="ABCab01+/=", max_size=300), st.binary(max_size=200))
def test_any_content_gives_an_answer(signature: str, signed: bytes) -> None:
    for manifest in (archive("AAAA"), image(signed, "AAAA")):
        fetch = manifest["spec"]["fetchStrategy"]
        fetch[next(iter(fetch))]["signature"] = signature
        view = Keys.parse(pem(EC)).judge(view_shim(manifest))
        assert view.invalid or wanted_shim_for(view, "amd64", require_checksum=True) is Refusal.UNSIGNED


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ("a key", "cosign.pub"),
        (pem(EC) + "and more", "cosign.pub"),
        (pem(EC) + "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "key 2 of 2"),
        (pem(ed25519.Ed25519PrivateKey.generate()), "key 1 of 1"),
        (pem(ec.generate_private_key(ec.SECP384R1())), "P-256"),
        (pem(rsa.generate_private_key(public_exponent=65537, key_size=1024)), "2048 bits"),
    ],
    ids=["no key", "more than keys", "garbage", "another kind", "another curve", "too short"],
)
def test_keys_that_cannot_be_used_are_named(text: str, expected_text: str) -> None:
    with pytest.raises(ValueError, match=expected_text):
        Keys.parse(text)


@pytest.mark.parametrize("text", ["", " \n"])
def test_no_text_is_no_key(text: str) -> None:
    assert Keys.parse(text) == Keys()
