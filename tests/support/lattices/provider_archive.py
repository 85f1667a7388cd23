"""Archives of capability providers of wasmCloud v1, as ``wash par create`` writes them.

In: a program. Out: a tar file with the program and its signed claims. Called by tests with a real host, which reads the
claims, compares their hash with that of the program, and starts it. Source: provider-archive 0.16, wascap 0.15.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import platform
import secrets
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, Final

from nacl.signing import SigningKey

from support.lattices import keyvalue_provider
from trellis.config.nkey import Prefix, encode_public

_CLAIMS: Final = "claims.jwt"


def keyvalue_archive() -> bytes:
    """Return the archive of the provider that stands in for keyvalue-nats."""
    # A host starts providers without environment, so the program names its interpreter.
    source = Path(keyvalue_provider.__file__).read_text(encoding="utf-8")
    return provider_archive("keyvalue-nats", f"#!{sys.executable}\n{source}".encode())


def provider_archive(name: str, program: bytes) -> bytes:
    """Return the archive of a program for this machine."""
    target = f"{platform.machine()}-linux"
    claims = _signed(name, {target: hashlib.sha256(program).hexdigest().upper()})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for file, content in ((_CLAIMS, claims.encode()), (f"{target}.bin", program)):
            entry = tarfile.TarInfo(file)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _signed(name: str, hashes: dict[str, str]) -> str:
    """Return the claims of a provider, signed by a new account."""
    account, provider = SigningKey.generate(), SigningKey.generate()
    claims = {
        "jti": secrets.token_hex(8),
        "iat": int(time.time()),
        "iss": encode_public(Prefix.ACCOUNT, account.verify_key.encode()),
        "sub": encode_public(Prefix.PROVIDER, provider.verify_key.encode()),
        "wascap": {"name": name, "vendor": "trellis", "target_hashes": hashes},
        "wascap_revision": 3,
    }
    text = f"{_part({'typ': 'jwt', 'alg': 'Ed25519'})}.{_part(claims)}"
    return f"{text}.{_encoded(account.sign(text.encode()).signature)}"


def _part(content: dict[str, Any]) -> str:
    return _encoded(json.dumps(content).encode())


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
