"""TLS certificates of the NATS servers of the bus, without cert-manager.

In: DNS names. Out: a CA certificate, a certificate and its key, as PEM. Called by ``secret``. Invariants: the key of
the CA is not returned, so nothing else can be signed with it; the certificates pass the strict checks of OpenSSL
(VERIFY_X509_STRICT): critical basic constraints and key usage of the CA, key identifiers.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALIDITY: Final = dt.timedelta(days=3650)
_CLOCK_SKEW: Final = dt.timedelta(hours=1)
_LOOPBACK: Final = "127.0.0.1"

_Key = ec.EllipticCurvePrivateKey


def make_certificate(dns_names: Sequence[str]) -> dict[str, str]:
    """Return ``tls.crt``, ``tls.key`` and ``ca.crt`` for servers, which are also clients of each other.

    The certificate is valid for ten years, for these names and for the loopback address (port-forward).
    """
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = (
        _builder("trellis-nats-authority", authority_key, "trellis-nats-authority", authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
    names.append(x509.IPAddress(ipaddress.ip_address(_LOOPBACK)))
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _builder("trellis-nats", key, "trellis-nats-authority", authority_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return {
        "tls.crt": certificate.public_bytes(pem).decode(),
        "tls.key": key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode(),
        "ca.crt": authority.public_bytes(pem).decode(),
    }


def _builder(name: str, key: _Key, issuer: str, issuer_key: _Key) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
