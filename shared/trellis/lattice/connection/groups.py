"""Derives the lattice of a host group: the NATS of its leaf nodes, with the same credentials.

Pure. In: the fields of its spec, and the Secrets that it names. Out: an address. Called by services that follow
lattices. Invariant: no message contains a secret.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from trellis.config.nats_credentials import CachedCredentials, Kind
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.domain.group_views import LatticeSpec
from trellis.lattice.domain.subjects import CONTROL_PREFIX

Manifest = Mapping[str, Any]

CREDENTIALS_KEY: Final = "nats.creds"
"""Key in the Secret of ``spec.secretName``."""
AUTHORITY_KEY: Final = "ca.crt"
CERTIFICATE_KEYS: Final = ("tls.crt", "tls.key")
"""Keys in the Secret of ``leafTls``: client certificate of the leaf nodes and of Trellis. Both keys are required."""
POD_LABEL: Final = "kubernetes_pod"
"""Label of a host with the name of its pod; it maps hosts of a lattice to pods."""


def lattice_address(spec: LatticeSpec, namespace: str, secrets: Mapping[str, Manifest | None]) -> LatticeAddress:
    """Return the lattice of a host group in a namespace; ``secrets``: Secrets by name, None for a missing one.

    Raises:
        SubjectError: the name of the lattice, or the prefix of its control subjects, is invalid in subjects.
    """
    text = _decoded(secrets, spec.secret_name, CREDENTIALS_KEY)
    where = f"Secret {namespace}/{spec.secret_name}, key {CREDENTIALS_KEY}"
    pair = [_decoded(secrets, spec.tls_secret, key) for key in CERTIFICATE_KEYS]
    nats = NatsAddress(
        f"{spec.nats_address}:{spec.nats_client_port}",
        CachedCredentials(text, Kind.CREDENTIALS, where) if text else None,
        _decoded(secrets, spec.tls_secret, AUTHORITY_KEY),
        "\n".join(pair) if all(pair) else "",
    )
    return LatticeAddress(nats, spec.lattice, spec.control_topic_prefix or CONTROL_PREFIX)


def _decoded(secrets: Mapping[str, Manifest | None], secret: str, key: str) -> str:
    """Return the text of a key of a Secret, "" if the key is missing or not text."""
    data = (secrets.get(secret) or {}).get("data") or {}
    try:
        return base64.b64decode(data.get(key) or "", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
