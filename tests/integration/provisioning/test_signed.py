"""With configured keys, nodes get only shims that one of the keys signed."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from support.nodes.fleet import Fleet, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import Shim

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

SHA = "ab" * 32
KEY = ec.generate_private_key(ec.SECP256R1())
PEM = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
SIGNATURE = base64.b64encode(KEY.sign(bytes.fromhex(SHA), ec.ECDSA(utils.Prehashed(SHA256())))).decode()


def source(sha256: str, signature: str | None) -> dict[str, dict[str, str | None]]:
    return {"anonHttp": {"location": "https://example.com/spin.tar.gz", "sha256": sha256, "signature": signature}}


async def test_a_node_gets_what_is_signed_and_keeps_it_when_something_else_is_not(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    async with fleet.services(shim_keys=PEM), kubelets(fleet):
        shim.apply(fetchStrategy=source(SHA, None))
        await eventually(lambda: shim.condition("Degraded") == ("True", "Unsigned"), "Degraded")
        assert not fleet.jobs()
        shim.apply(fetchStrategy=source(SHA, SIGNATURE))
        await eventually(lambda: shim.condition("Available")[0] == "True", "available", seconds=60)
        await eventually(lambda: shim.condition("Degraded")[0] == "False", "well")
        assert shim.has(node)
        had = fleet.annotations(node)
        shim.apply(fetchStrategy=source("cd" * 32, SIGNATURE))
        await eventually(lambda: shim.condition("Degraded") == ("True", "Unsigned"), "Degraded again")
        await fleet.quiet()
        assert shim.has(node)
        assert fleet.annotations(node) == had, "the node keeps what it has"
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
