"""Passwords made in the cluster: as the chart's of the same seed, once, and never another for who has one."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from support.chart.rendered import CHART, of, rendered
from support.suite.naming import lacking
from trellis.kube.resources import NAMESPACES, SECRETS
from trellis_cli.bus.passwords import CLIENTS, SERVER, client_secret, client_texts, make_missing, passwords_file
from trellis_cli.common.errors import CommandError
from trellis_dev.fakes.fake import FakeKube
from trellis_tools.base.generate import documents, main, render
from trellis_tools.base.model import leaked

HOME = "trellis-system"


def server() -> FakeKube:
    kube = FakeKube()
    kube.put(NAMESPACES, {"metadata": {"name": HOME}})
    return kube


def texts(kube: FakeKube, name: str) -> dict[str, str]:
    [found] = [one for one in kube.objects(SECRETS) if one["metadata"]["name"] == name]
    data = {key: base64.b64decode(value).decode() for key, value in found.get("data", {}).items()}
    return data | found.get("stringData", {})


def put(kube: FakeKube, **data: str) -> None:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    kube.put(SECRETS, {"metadata": {"name": SERVER, "namespace": HOME}, "data": encoded})


def test_the_same_seed_gives_what_the_chart_gives() -> None:
    found = of(rendered(services={"console": {"enabled": True}}))
    server = found["Secret", HOME, SERVER]["stringData"]
    assert sorted(passwords_file(server["seed"]).splitlines()) == sorted(server["passwords.conf"].splitlines())
    for user in CLIENTS:
        assert client_texts(server["seed"], user, HOME) == found["Secret", HOME, client_secret(user)]["stringData"]


async def test_what_is_missing_is_made_of_the_seed_that_is_there() -> None:
    kube = server()
    put(kube, seed="s", **{"passwords.conf": passwords_file("s")})
    made = await make_missing(kube, HOME)
    assert made == [client_secret(user) for user in CLIENTS]
    assert texts(kube, "trellis-nats-cli") == client_texts("s", "cli", HOME)
    writes = len(kube.writes)
    assert await make_missing(kube, HOME) == []
    assert [one.method for one in kube.writes[writes:]] == ["POST"], "it only asks whether the first may be made"


async def test_a_seed_is_made_once_and_no_two_are_alike() -> None:
    seeds = []
    for _ in range(2):
        kube = server()
        assert (await make_missing(kube, HOME))[0] == SERVER
        seeds.append(texts(kube, SERVER)["seed"])
        assert len(seeds[-1]) >= 40
    assert seeds[0] != seeds[1]


async def test_a_server_is_told_of_users_that_it_does_not_know() -> None:
    kube = server()
    put(kube, seed="s", **{"passwords.conf": "PASSWORD_CLI: x\n", "other": "kept"})
    assert SERVER in await make_missing(kube, HOME)
    [patch] = [one for one in kube.writes if one.method == "PATCH"]
    assert b"PASSWORD_PROVISIONER" in (patch.body or b"")
    assert texts(kube, SERVER)["other"] == "kept"


async def test_a_server_whose_seed_is_gone_is_left_as_it_is() -> None:
    kube = server()
    put(kube, **{"passwords.conf": "PASSWORD_CLI: x\n"})
    with pytest.raises(CommandError, match=r"\btrellis-nats-server\b.*\bseed\b"):
        await make_missing(kube, HOME)


# --- deploy/base ---


def test_a_base_that_differs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rendered()
    arguments = [str(tmp_path), "--chart", str(CHART)]
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 0
    (tmp_path / "nats.yaml").write_text("x")
    (tmp_path / "old.yaml").write_text("x")
    assert main([*arguments, "--check"]) == 1
    told = capsys.readouterr().err
    assert lacking(told, "nats.yaml", "make generate", "old.yaml") == []


def test_a_password_that_would_be_public_is_found() -> None:
    rendered()  # skips where there is no helm
    found = render(CHART)
    assert leaked(found, documents(found).values()) == ""
    [people] = [one for one in found if one["metadata"]["name"] == "trellis-nats-cli"]
    assert leaked(found, [f"x: {people['stringData']['password']}"]) != ""
