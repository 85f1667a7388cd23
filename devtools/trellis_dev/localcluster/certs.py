"""The certificates, keys and tokens of one temporary control plane.

In: a directory. Out: files in it, readable by their owner only, under the names that :mod:`.commands` passes on.
Called by `up` once per cluster. Invariant: the chains pass the strict checks of OpenSSL (VERIFY_X509_STRICT, the
default of Python 3.13): critical basic constraints and key usage on the CAs, key identifiers on every certificate.
P-256 keys, because generating RSA keys needs more time than starting etcd.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trellis_dev.localcluster.ports import LOOPBACK

SERVICE_RANGE: Final = "10.96.0.0/16"
SERVICE_RANGE_IPV6: Final = "fd00:10:96::/112"
_SERVICE_IP: Final = "10.96.0.1"
_LIFETIME: Final = dt.timedelta(days=3650)
_CLOCK_SKEW: Final = dt.timedelta(hours=1)

USERS: Final = {
    "admin": "system:masters",
    "kube-controller-manager": "",
    "kube-scheduler": "",
    "kwok": "system:masters",
}
"""Users with a token: user → group. Both ``system:`` users have their permissions by name, from the default RBAC."""

KUBELET_CLIENT: Final = "kube-apiserver-kubelet-client"
"""Name of the client certificate of the API server for logs of kubelets; exists only with real nodes."""

Issuer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, at no moment readable by other users."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def write_pki(directory: Path, address: str = LOOPBACK, nodes: Sequence[str] = (), hosts: Sequence[str] = ()) -> None:
    """Write both CAs, the server and front-proxy certificates, the service-account keys and the tokens.

    ``address``: listen address of the API server; ``nodes``: real nodes, each of which gets a token; ``hosts``: further
    names of the API server.
    """
    authority = _authority("trellis-local-ca")
    _write(directory, "ca", *authority)
    names: list[x509.GeneralName] = [
        x509.DNSName(name)
        for name in ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
                     "kubernetes.default.svc.cluster.local", *hosts)
    ]  # fmt: skip
    names += [x509.IPAddress(ipaddress.ip_address(each)) for each in sorted({LOOPBACK, address, _SERVICE_IP})]
    _write(directory, "kube-apiserver", *_leaf("kube-apiserver", authority, names))
    front_proxy = _authority("trellis-local-front-proxy-ca")
    _write(directory, "front-proxy-ca", *front_proxy)
    _write(directory, "front-proxy-client", *_leaf("front-proxy-client", front_proxy, []))
    _write_service_account_keys(directory)
    lines = [f'{secrets.token_hex(16)},{_user_name(user)},{user},"{group}"' for user, group in USERS.items()]
    if nodes:
        _write(directory, KUBELET_CLIENT, *_leaf(KUBELET_CLIENT, authority, []))
        lines.append(f"{secrets.token_hex(16)},system:kube-proxy,kube-proxy")
        lines += [f"{secrets.token_hex(16)},system:node:{node},{node},system:nodes" for node in nodes]
    write_private(directory / "tokens.csv", "\n".join([*lines, ""]).encode())


def read_token(directory: Path, user: str) -> str:
    """Return the bearer token of one of :data:`USERS`. Raise KeyError if there is none."""
    rows = (line.split(",") for line in (directory / "tokens.csv").read_text(encoding="ascii").splitlines())
    return {uid: token for token, _, uid, *_ in rows}[user]


def _user_name(user: str) -> str:
    return f"system:{user}" if user.startswith("kube-") else user


def _certificate(name: str, key: ec.EllipticCurvePrivateKey, issuer: Issuer | None) -> x509.CertificateBuilder:
    """Return the common fields of CA and leaf certificates: names, validity, serial number and key identifiers."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    signer = issuer[1].public_key() if issuer else key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(name: str) -> Issuer:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _certificate(name, key, None)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(authority=True), critical=True)
    )
    return builder.sign(key, hashes.SHA256()), key


def _leaf(name: str, issuer: Issuer, names: list[x509.GeneralName]) -> Issuer:
    """Return a server certificate for these names, or a client certificate if there are none."""
    key = ec.generate_private_key(ec.SECP256R1())
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _certificate(name, key, issuer)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer[1], hashes.SHA256()), key


def _private_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(directory: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    write_private(directory / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
    write_private(directory / f"{name}.key", _private_bytes(key))


def _write_service_account_keys(directory: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_private(directory / "service-account.key", _private_bytes(key))
    write_private(directory / "service-account.pub", public)
