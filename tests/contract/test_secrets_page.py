"""The pages about Secrets: their grants are valid and permit their policies, and their commands exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from secrets_backend.domain.decide import ConnectionGrant, identify, view_grant
from secrets_backend.domain.policy import Policy
from secrets_backend.domain.refusals import Refusal
from secrets_backend.domain.tokens import Token
from secrets_backend.settings import Settings
from support.suite.commands import expect_command
from trellis.crds.application import Application
from trellis.crds.secret_grants import SecretGrant
from trellis.events.secrets import SecretChanged, SecretDenied, SecretGranted
from trellis.names import ANNOTATION_RESTART_ON, ANNOTATION_RESTARTED_FOR, RESTART_ON_CHANGE, SECRETS_KEY
from trellis_cli.secrets.model import RuleInputs, judge, uses_of

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/secrets.md", *sorted((ROOT / "docs/secrets").glob("*.md"))]
PAGE = "\n".join(path.read_text() for path in PAGES)
APPLICATIONS = {
    name: yaml.safe_load(text) for name, text in re.findall(r"```yaml application (\w+)\n(.*?)```", PAGE, re.DOTALL)
}
GRANTS = {
    item["metadata"]["name"]: item
    for item in map(yaml.safe_load, re.findall(r"```yaml grant\n(.*?)```", PAGE, re.DOTALL))
}
LINK = ConnectionGrant(frozenset({"shop"}), frozenset({("shop", "default")}), tuple(map(view_grant, GRANTS.values())))
SIGNER = GRANTS["signed"]["spec"]["entityIssuers"][0]
TOKEN = Token(SIGNER, "M", "cart")


@pytest.mark.parametrize("grant", GRANTS.values(), ids=str)
def test_a_grant_of_the_page_has_only_known_fields(grant: dict[str, Any]) -> None:
    read = SecretGrant.model_validate(grant)
    assert read.spec.model_dump(by_alias=True, exclude_unset=True) == grant["spec"]


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("own", "system:serviceaccount:shop:wasmcloud-secrets"),
        ("other", "system:serviceaccount:payments:reader"),
    ],
)
def test_an_application_is_permitted_as_the_documented_account(name: str, user: str) -> None:
    application = APPLICATIONS[name]
    Application.model_validate(application)
    [use] = uses_of(application)
    row = judge(application, use, RuleInputs(LINK, TOKEN, frozenset(), Settings().secrets_backend))
    assert row.ok
    assert row.identity is not None
    assert row.identity.user == user


def test_without_the_grant_the_other_namespace_is_closed() -> None:
    [use] = uses_of(APPLICATIONS["other"])
    bare = ConnectionGrant(LINK.home, LINK.groups)
    assert not judge(APPLICATIONS["other"], use, RuleInputs(bare, TOKEN, frozenset(), "kube")).ok


def test_the_user_of_the_page_is_one_by_both_lists() -> None:
    found = re.search(r"TRELLIS_SECRETS_USERS=([^`]+)`", PAGE)
    assert found is not None
    users = frozenset(Settings.model_validate({"secrets_users": found[1]}).secrets_users)
    assert identify(Policy("payments", found[1]), TOKEN, LINK, users).user == found[1]
    with pytest.raises(Refusal):
        identify(Policy("payments", found[1]), TOKEN, LINK, frozenset())


def test_only_the_signer_of_the_page_may_ask_there() -> None:
    assert identify(Policy("ledger", None), TOKEN, LINK, frozenset()).namespace == "ledger"
    with pytest.raises(Refusal, match="entityIssuers"):
        identify(Policy("ledger", None), Token("A" + SIGNER[:0:-1], "M", None), LINK, frozenset())


LINES = sorted(
    set(re.findall(r"(?:^|`|\| )trellis ((?:secrets|migrate|crds|run|status|events)[^`|#\n]*)", PAGE, re.MULTILINE))
)


@pytest.mark.parametrize("line", LINES)
def test_every_command_of_the_page_exists_with_its_options(line: str) -> None:
    expect_command(line)


def test_settings_events_and_names_of_the_page_are_those_of_the_code() -> None:
    settings = {f"TRELLIS_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"TRELLIS_[A-Z_]+", PAGE)) <= settings
    events = {f"{model.noun}.{model.event_name}" for model in (SecretChanged, SecretDenied, SecretGranted)}
    assert set(re.findall(r"`(secret\.\w+)`", PAGE)) == events
    assert f"{ANNOTATION_RESTART_ON}={RESTART_ON_CHANGE}" in PAGE
    assert ANNOTATION_RESTARTED_FOR in PAGE
    assert SECRETS_KEY in PAGE
