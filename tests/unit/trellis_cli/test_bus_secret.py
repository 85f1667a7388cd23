"""The keys of the bus in a Secret: made once, extended and never replaced; `deploy/base` has none of them."""

from __future__ import annotations

import base64
import hashlib
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from support.chart.rendered import CHART, rendered
from support.suite.naming import lacking
from trellis.bus.accounts.accounts import ACCOUNTS_FILE, KEYS_FILE, ROUTES_FILE, public_keys, routes_password
from trellis.bus.accounts.permissions import users
from trellis.config.nats_credentials import Kind, identity_of, new_seed
from trellis.kube.resources import NAMESPACES, SECRETS
from trellis_cli.bus.certificates import make_certificate
from trellis_cli.bus.secret import Outcome, Servers, seed_key, write_certificate, write_users
from trellis_cli.common.errors import CommandError
from trellis_dev.fakes.fake import FakeKube
from trellis_tools.base.generate import main
from trellis_tools.base.model import files_of

HOME = "trellis-system"
BUS = "trellis-bus"
ONE = Servers("lab")
THREE = Servers("lab", 3, tuple(f"trellis-nats-{number}.trellis-nats-headless:6222" for number in range(3)))


@pytest.fixture
def kube() -> FakeKube:
    fake = FakeKube()
    fake.put(NAMESPACES, {"metadata": {"name": HOME}})
    return fake


def texts(kube: FakeKube, name: str = BUS) -> dict[str, str]:
    [found] = [item for item in kube.objects(SECRETS) if item["metadata"]["name"] == name]
    return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}


def put(kube: FakeKube, name: str, **data: str) -> None:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    kube.put(SECRETS, {"metadata": {"name": name, "namespace": HOME}, "data": encoded})


async def test_each_user_has_a_seed_of_its_own_and_the_server_its_public_key(kube: FakeKube) -> None:
    assert (await write_users(kube, HOME, BUS, ONE)).status is Outcome.CREATED
    found = texts(kube)
    everybody = users(["lab"])
    assert set(found) == {*(seed_key(user.name) for user in everybody), ACCOUNTS_FILE, KEYS_FILE}
    known = public_keys(found[KEYS_FILE])
    assert {user.variable: identity_of(found[seed_key(user.name)], Kind.NKEY).public_key for user in everybody} == known
    assert len(set(known.values())) == len(everybody)
    assert all(f"nkey: ${user.variable}" in found[ACCOUNTS_FILE] for user in everybody)


async def test_no_seed_is_where_the_servers_read(kube: FakeKube) -> None:
    await write_users(kube, HOME, BUS, THREE)
    found = texts(kube)
    seeds = [text for key, text in found.items() if key.endswith(".nk")]
    assert not [seed for seed in seeds for key in (ACCOUNTS_FILE, KEYS_FILE, ROUTES_FILE) if seed in found[key]]


async def test_existing_users_stay_and_a_second_run_changes_nothing(kube: FakeKube) -> None:
    await write_users(kube, HOME, BUS, THREE)
    before, writes = texts(kube), len(kube.writes)
    assert (await write_users(kube, HOME, BUS, THREE)).status is Outcome.UNCHANGED
    assert len(kube.writes) == writes
    assert texts(kube) == before


async def test_a_user_that_is_missing_is_added_with_all_that_others_have(kube: FakeKube) -> None:
    seed = new_seed()
    put(kube, BUS, **{"cli.nk": seed, "other": "kept"})
    assert (await write_users(kube, HOME, BUS, ONE)).status is Outcome.UPDATED
    found = texts(kube)
    assert (found["cli.nk"], found["other"]) == (seed, "kept")
    assert public_keys(found[KEYS_FILE])["NKEY_CLI"] == identity_of(seed, Kind.NKEY).public_key
    assert set(found) >= {seed_key(user.name) for user in users(["lab"])}


async def test_more_servers_share_a_password_which_stays(kube: FakeKube) -> None:
    await write_users(kube, HOME, BUS, ONE)
    assert ROUTES_FILE not in texts(kube)
    await write_users(kube, HOME, BUS, THREE)
    password = routes_password(texts(kube)[ROUTES_FILE])
    assert len(password) == 64
    assert all(f"routes:{password}@{host}" in texts(kube)[ROUTES_FILE] for host in THREE.routes)
    await write_users(kube, HOME, BUS, Servers("lab", 3, ("elsewhere:6222",)))
    assert f"routes:{password}@elsewhere:6222" in texts(kube)[ROUTES_FILE]


async def test_servers_of_the_chart_before_are_joined_by_their_own_password(kube: FakeKube) -> None:
    put(kube, "trellis-nats-server", seed="s")
    await write_users(kube, HOME, BUS, THREE)
    assert routes_password(texts(kube)[ROUTES_FILE]) == hashlib.sha256(b"s/routes").hexdigest()


async def test_a_seed_that_is_none_is_named_and_not_shown(kube: FakeKube) -> None:
    put(kube, BUS, **{"cli.nk": "not-a-seed"})
    with pytest.raises(CommandError, match=r"trellis-bus.*cli\.nk") as caught:
        await write_users(kube, HOME, BUS, ONE)
    assert "not-a-seed" not in str(caught.value)
    assert [write for write in kube.writes if write.method != "GET"] == []


async def test_argo_cd_does_not_take_the_secret_for_its_own(kube: FakeKube) -> None:
    """By that label it would find the Secret in no manifest and prune it."""
    await write_users(kube, HOME, BUS, ONE)
    await write_certificate(kube, HOME, "tls", ["localhost"])
    for item in kube.objects(SECRETS):
        assert "app.kubernetes.io/instance" not in item["metadata"]["labels"]


# --- certificates ---


async def test_certificates_are_made_once_or_taken_from_the_chart_before(kube: FakeKube) -> None:
    assert (await write_certificate(kube, HOME, "tls", ["localhost"])).status is Outcome.CREATED
    before = texts(kube, "tls")
    assert (await write_certificate(kube, HOME, "tls", ["localhost"])).status is Outcome.UNCHANGED
    assert texts(kube, "tls") == before
    put(kube, "trellis-nats-tls", **{"tls.crt": "a", "tls.key": "b", "ca.crt": "c"})
    await write_certificate(kube, HOME, "other", ["localhost"])
    assert texts(kube, "other") == {"tls.crt": "a", "tls.key": "b", "ca.crt": "c"}
    [secret] = [item for item in kube.objects(SECRETS) if item["metadata"]["name"] == "other"]
    assert secret["type"] == "kubernetes.io/tls"


def test_a_certificate_has_its_names_and_is_signed_by_an_authority_whose_key_is_discarded() -> None:
    made = make_certificate(["trellis-nats.lab", "*.trellis-nats-headless.lab"])
    assert set(made) == {"tls.crt", "tls.key", "ca.crt"}
    assert made["ca.crt"] != made["tls.crt"]
    ssl.create_default_context(cadata=made["ca.crt"])
    certificate = x509.load_pem_x509_certificate(made["tls.crt"].encode())
    store = Store([x509.load_pem_x509_certificate(made["ca.crt"].encode())])
    for name in ("trellis-nats.lab", "trellis-nats-1.trellis-nats-headless.lab"):
        PolicyBuilder().store(store).build_server_verifier(x509.DNSName(name)).verify(certificate, [])
    assert make_certificate(["localhost"])["tls.key"] != made["tls.key"]


# --- deploy/base ---


def test_a_base_that_differs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rendered()
    arguments = [str(tmp_path), "--chart", str(CHART)]
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 0
    (tmp_path / "nats.yaml").write_text("x")
    (tmp_path / "old.yaml").write_text("x")
    assert main([*arguments, "--check"]) == 1
    stderr = capsys.readouterr().err
    assert lacking(stderr, "nats.yaml", "make generate", "old.yaml") == []


def test_a_secret_that_would_be_public_is_refused_by_its_name() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"key": "k"}}
    with pytest.raises(ValueError, match="key"):
        files_of([secret])
