"""Settings: their precedence, and messages about unusable values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings

from support.suite.naming import lacking
from trellis.config.errors import RENAMED_SETTINGS
from trellis.config.settings import (
    Namespaces,
    ServiceSettings,
    SettingsError,
    exit_on_settings_error,
    load,
    unknown_variables,
)
from trellis.provisioning.int_or_percent import CountOrPercent


def _even(value: int) -> int:
    if value % 2:
        message = "needs an even number"
        raise ValueError(message)
    return value


class RolloutSettings(ServiceSettings):
    """A service's own settings, with every kind of field a service uses."""

    max_unavailable: CountOrPercent = CountOrPercent(1)
    attempts: int = Field(default=3, ge=1)
    share: float = Field(default=0.5, gt=0, lt=1)
    pair: Annotated[int, AfterValidator(_even)] = 2
    zone_by_zone: bool = False
    policy: Literal["refuse", "drain"] = "refuse"
    limit: Annotated[int, Field(ge=2)] | None = None
    image: str = Field(default="x", pattern=r"[a-z]+", max_length=5)
    nats_password: SecretStr | None = Field(default=None, min_length=8)


class RequiringSettings(ServiceSettings):
    installer_image: str = Field(description="the image that installs the shim")


def lines(cls: type[BaseSettings], **overrides: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(cls, **overrides)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("MAX_UNAVAILABLE", "12x", "has '12x', needs a whole number or a percentage, e.g. 5 or 10%"),
        ("MAX_UNAVAILABLE", "0", "has '0', needs at least 1 or 1%: 0 would block the rollout"),
        ("HEALTH_PORT", "http", "has 'http', needs a whole number"),
        ("HEALTH_PORT", "65536", "has '65536', needs at least 0 and at most 65535"),
        ("HEALTH_PORT", "-1", "has '-1', needs at least 0 and at most 65535"),
        ("ATTEMPTS", "0", "has '0', needs at least 1"),
        ("ATTEMPTS", "1.5", "has '1.5', needs a whole number"),
        ("LIMIT", "1", "has '1', needs at least 2"),
        ("SHARE", "1", "has '1', needs more than 0 and less than 1"),
        ("SHARE", "half", "has 'half', needs a number"),
        ("PAIR", "3", "has '3', needs an even number"),
        ("ZONE_BY_ZONE", "perhaps", "has 'perhaps', needs true or false"),
        ("POLICY", "force", "has 'force', needs 'refuse' or 'drain'"),
        ("IMAGE", "abcdef", "has 'abcdef', needs at most 5 characters"),
        ("IMAGE", "12", "has '12', needs text that matches [a-z]+"),
        ("SHUTDOWN_GRACE_PERIOD", "soon", "has 'soon', needs a duration, e.g. 30s, 5m or 1h30m"),
        ("SHUTDOWN_GRACE_PERIOD", "0s", "has '0s', needs more than 0"),
        ("LOG_LEVEL", "loud", "has 'loud', needs 'debug', 'info', 'warning' or 'error'"),
        ("LOG_FORMAT", "xml", "has 'xml', needs 'auto', 'json' or 'text'"),
        ("OTLP_ENDPOINT", "collector:4318", "has 'collector:4318', needs an address such as http://host:4318"),
    ],
)
def test_a_mistake_is_one_line_with_the_variable_its_value_and_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, line: str
) -> None:
    monkeypatch.setenv(f"TRELLIS_{variable}", value)
    assert lines(RolloutSettings) == [f"TRELLIS_{variable}: {line}"]


@pytest.mark.parametrize(("former", "present"), RENAMED_SETTINGS.items())
def test_a_former_name_is_refused_with_the_present_one(
    monkeypatch: pytest.MonkeyPatch, former: str, present: str
) -> None:
    assert present not in RENAMED_SETTINGS
    monkeypatch.setenv(former, "1")
    assert lines(ServiceSettings) == [f"{former}: renamed to {present}"]


def test_all_mistakes_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRELLIS_HEALTH_PORT", "x")
    monkeypatch.setenv("TRELLIS_NAMESPACE", "Not_A_Label")
    assert [line.split(":")[0] for line in lines(ServiceSettings)] == ["TRELLIS_NAMESPACE", "TRELLIS_HEALTH_PORT"]


def test_a_missing_value_states_its_purpose() -> None:
    [line] = lines(RequiringSettings)
    assert line.startswith("TRELLIS_INSTALLER_IMAGE: ")
    assert line.endswith(RequiringSettings.model_fields["installer_image"].description or "no description")


def test_a_mistake_on_the_command_line_names_the_flag_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRELLIS_NATS_URL", "nats://good:4222")
    (line,) = lines(ServiceSettings, nats_url="bad:4222")
    assert line.startswith("TRELLIS_NATS_URL (--nats-url): has 'bad:4222', ")
    assert lacking(line, "nats://host:4222", "tls://host:4222", "ws://host:8080") == []


def test_the_variable_that_was_set_is_named_where_there_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense")
    assert lines(ServiceSettings)[0].startswith("OTEL_EXPORTER_OTLP_ENDPOINT: has 'nonsense'")


@pytest.mark.parametrize("variable", ["TRELLIS_NATS_URL", "trellis_nats_url"])
def test_a_password_in_a_url_is_never_shown(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://admin:hunter2@bus:4222")
    (line,) = lines(ServiceSettings)
    assert "'http://admin:***@bus:4222'" in line
    assert "hunter2" not in line


def test_a_password_in_a_list_where_no_address_belongs_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watching(ServiceSettings):
        namespaces: Namespaces = ()

    monkeypatch.setenv("TRELLIS_NAMESPACES", "a,nats://user:hunter2@host:4222")
    (line,) = lines(Watching)
    assert "hunter2" not in line
    assert "nats://user:***@host:4222" in line


@pytest.mark.parametrize("override", [None, "hunter2"])
def test_a_secret_is_never_shown(monkeypatch: pytest.MonkeyPatch, override: str | None) -> None:
    monkeypatch.setenv("TRELLIS_NATS_PASSWORD", "hunter2")
    (line,) = lines(RolloutSettings, nats_password=override)
    assert "***" in line
    assert "hunter2" not in line


def test_a_rule_over_several_fields_is_reported_in_its_own_words() -> None:
    class StartupBarrier(ServiceSettings):
        @model_validator(mode="after")
        def _check(self) -> StartupBarrier:
            message = "TRELLIS_CLUSTER and TRELLIS_CONTEXT exclude each other"
            raise ValueError(message)

    assert lines(StartupBarrier) == ["TRELLIS_CLUSTER and TRELLIS_CONTEXT exclude each other"]


def test_an_override_wins_over_the_environment_and_none_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRELLIS_CLUSTER", "from-env")
    monkeypatch.setenv("TRELLIS_OTLP_ENDPOINT", "http://env:4318")
    assert load(ServiceSettings, cluster="from-flag").cluster == "from-flag"
    assert load(ServiceSettings, cluster=None).cluster == "from-env"
    assert load(ServiceSettings, otlp_endpoint="http://flag:4318").otlp_endpoint == "http://flag:4318"


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRELLIS_HEALTH_PORT", "TRELLIS_CLUSTER", "TRELLIS_OTLP_ENDPOINT", "TRELLIS_KUBECONFIG"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:4318")
    settings = load(ServiceSettings)
    assert (settings.health_port, settings.cluster, settings.kubeconfig) == (8080, None, None)
    assert settings.otlp_endpoint == "http://otel:4318"


@pytest.mark.parametrize(
    ("environ", "kubeconfig"),
    [
        ({"KUBECONFIG": "/k"}, Path("/k")),
        ({"KUBECONFIG": "/k", "TRELLIS_KUBECONFIG": "/t"}, Path("/t")),
        ({"TRELLIS_KUBECONFIG": "~/t"}, Path.home() / "t"),
        ({}, None),
    ],
)
def test_the_kubeconfig_of_trellis_precedes_that_of_kubectl(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], kubeconfig: Path | None
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert load(ServiceSettings).kubeconfig == kubeconfig


def test_values_are_read_as_people_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRELLIS_SHUTDOWN_GRACE_PERIOD", "1m30s")
    monkeypatch.setenv("TRELLIS_LOG_LEVEL", "DEBUG")
    monkeypatch.setenv("TRELLIS_MAX_UNAVAILABLE", "10%")
    monkeypatch.setenv("TRELLIS_NATS_URL", "nats://a:4222, tls://b:4222")
    settings = load(RolloutSettings)
    assert (settings.shutdown_grace_period, settings.log_level) == (90.0, "debug")
    assert settings.max_unavailable == CountOrPercent(10, is_percent=True)
    assert settings.nats_servers == ("nats://a:4222", "tls://b:4222")


@pytest.mark.parametrize(
    "url", ["", "bus", "bus:4222", "http://bus", "nats://", "nats://a:x", "nats://a,", "nats://a:99999"]
)
def test_an_address_that_cannot_be_a_bus_is_refused(url: str) -> None:
    assert "needs an address" in lines(ServiceSettings, nats_url=url)[0]


def test_two_processes_have_two_identities_with_their_hosts() -> None:
    first, second = load(ServiceSettings).identity, load(ServiceSettings).identity
    assert first != second
    assert f"_{os.getpid()}_" in first


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(ServiceSettings).cluster = "x"  # type: ignore[misc]


def test_a_typo_is_reported_with_the_likely_name() -> None:
    environ = {
        "TRELLIS_NATS_ULR": "x",
        "TRELLIS_WHATEVER": "x",
        "TRELLIS_CLUSTER": "x",
        "trellis_cluster": "x",
        "PATH": "x",
    }
    misspelt, unknown = unknown_variables([ServiceSettings], environ)
    assert lacking(misspelt, "TRELLIS_NATS_ULR", "TRELLIS_NATS_URL") == []
    assert (lacking(unknown, "TRELLIS_WHATEVER"), unknown.count("TRELLIS_")) == ([], 1)


def test_variables_kubernetes_sets_for_services_are_no_typos() -> None:
    names = (
        "NATS_SERVICE_HOST",
        "NATS_SERVICE_PORT",
        "NATS_SERVICE_PORT_CLIENT",
        "NATS_PORT",
        "NATS_PORT_4222_TCP_ADDR",
    )
    assert unknown_variables([ServiceSettings], {f"TRELLIS_{name}": "x" for name in names}) == []


def test_a_variable_overwritten_by_kubernetes_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRELLIS_HEALTH_PORT", "tcp://10.96.0.7:8080")
    (line,) = lines(ServiceSettings)
    assert line.startswith("TRELLIS_HEALTH_PORT: has 'tcp://10.96.0.7:8080', ")
    assert lacking(line, "enableServiceLinks: false") == []


def test_a_variable_of_any_of_the_classes_is_known() -> None:
    environ = {"TRELLIS_POLICY": "drain", "TRELLIS_INSTALLER_IMAGE": "x"}
    assert unknown_variables([RolloutSettings, RequiringSettings], environ) == []


def test_main_ends_with_the_line_on_stderr_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    @exit_on_settings_error()
    def main() -> None:
        load(ServiceSettings, health_port=70000)

    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("TRELLIS_HEALTH_PORT (--health-port): has 70000, ")
    assert lacking(err, "0", "65535") == []


class ConfinedSettings(ServiceSettings):
    watch_namespaces: Namespaces = ()


def test_namespaces_are_separated_by_commas_each_counts_once() -> None:
    assert load(ConfinedSettings).watch_namespaces == ()
    assert load(ConfinedSettings, watch_namespaces=" b, a,b,").watch_namespaces == ("b", "a")


def test_an_invalid_namespace_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRELLIS_WATCH_NAMESPACES", "a,B_c")
    [line] = lines(ConfinedSettings)
    assert line.startswith("TRELLIS_WATCH_NAMESPACES: has 'a,B_c', ")
    assert "'B_c'" in line
