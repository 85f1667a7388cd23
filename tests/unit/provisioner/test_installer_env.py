"""The provisioner's settings about the network around its installers, and what a Job shows of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provisioner.domain.resources import Task, make_installer_job
from provisioner.settings import Settings
from support.suite.golden import Golden
from trellis.config.settings import SettingsError, load
from trellis.installer_api.spec import InstallSpec, Source, WantedShim
from trellis.provisioning.views import KWASM, Target
from trellis_dev.testing.builders import DIGEST, a_node


def wanted_shim(name: str, *secrets: str | None) -> WantedShim:
    sources = (Source(f"oci://r.example.com/{name}@sha256:{'a' * 64}", None, pull_secret=secret) for secret in secrets)
    return WantedShim(name, name, DIGEST, "trellis", tuple(sources))


SPEC = InstallSpec(
    (wanted_shim("spin", "team-b"), wanted_shim("slight", "team-a"), wanted_shim("other", "team-b", None))
)
ALL: dict[str, Any] = {
    "otlp_endpoint": "http://otel.observability:4318",
    "installer_https_proxy": "http://proxy.example.com:3128",
    "installer_no_proxy": "10.0.0.0/8,.svc",
    "installer_proxy_secret": "proxy",
    "installer_ca_config_map": "our-ca/root.pem",
    "installer_pull_secrets": "mirror, other-mirror",
}


def job(spec: InstallSpec | None, *, removes: bool = False, **settings: Any) -> dict[str, Any]:
    target = Target((("spin", DIGEST),)) if spec else Target(((KWASM, DIGEST),))
    task = Task(target, spec=spec, removes=removes)
    return make_installer_job(Settings(**settings).installer(), a_node(), task, 1, None)


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return found


def test_the_job_with_all_that_the_network_needs(golden: Golden) -> None:
    golden.check("provisioner/job-surroundings", job(SPEC, **ALL))


def test_the_job_that_removes_needs_no_registry(golden: Golden) -> None:
    golden.check("provisioner/job-surroundings-removal", job(SPEC, removes=True, **ALL))


def test_a_legacy_image_gets_the_pull_secrets_of_its_own_image_and_nothing_else() -> None:
    with_all, bare = job(None, **ALL), job(None)
    assert pod(with_all).pop("imagePullSecrets") == [{"name": "mirror"}, {"name": "other-mirror"}]
    assert with_all == bare


@pytest.mark.parametrize(
    ("own", "service", "endpoint"),
    [
        (None, None, None),
        (None, "http://otel:4318", "http://otel:4318"),
        (None, "http://127.0.0.1:4318", None),
        (None, "http://127.8.0.1:4318", None),
        (None, "http://localhost:4318", None),
        (None, "http://[::1]:4318", None),
        (None, "http://0.0.0.0:4318", None),
        (None, "https://me:hunter2@otel:4318", None),
        ("http://127.0.0.1:4318", None, "http://127.0.0.1:4318"),
        ("http://otel:4318", "http://localhost:4318", "http://otel:4318"),
    ],
)
def test_the_installer_gets_the_services_endpoint_unless_it_means_something_else_there(
    own: str | None, service: str | None, endpoint: str | None
) -> None:
    given = Settings(otlp_endpoint=service, installer_otlp_endpoint=own).installer()
    assert given.installer_env.otlp_endpoint == endpoint


@pytest.mark.parametrize(
    ("variable", "value", "needs"),
    [
        ("HTTPS_PROXY", "http://me:hunter2@proxy:3128", "TRELLIS_INSTALLER_PROXY_SECRET"),
        ("HTTP_PROXY", "http://hunter2@proxy:3128", "TRELLIS_INSTALLER_PROXY_SECRET"),
        ("OTLP_ENDPOINT", "https://me:hunter2@otel:4318", "TRELLIS_INSTALLER_PROXY_SECRET"),
        ("HTTPS_PROXY", "proxy:3128", "http://proxy:3128"),
        ("HTTPS_PROXY", "https://proxy:3128", " http://proxy:3128"),
        ("PROXY_SECRET", "Not_A_Name", "Not_A_Name"),
        ("CA_CONFIG_MAP", "our-ca/", "ConfigMap"),
        ("CA_CONFIG_MAP", "/root.pem", "ConfigMap"),
        ("CA_CONFIG_MAP", "a/b/c", "ConfigMap"),
        ("CA_CONFIG_MAP", "Our CA", "ConfigMap"),
        ("PULL_SECRETS", "mirror,Other Mirror", "Secrets"),
    ],
)
def test_an_unusable_value_is_refused_and_no_password_is_shown(
    variable: str, value: str, needs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"TRELLIS_INSTALLER_{variable}", value)
    with pytest.raises(SettingsError) as caught:
        load(Settings)
    assert needs in str(caught.value)
    assert f"TRELLIS_INSTALLER_{variable}: has " in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_password_is_passed_only_by_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRELLIS_INSTALLER_HTTPS_PROXY", "http://me:hunter2@proxy:3128")
    with pytest.raises(SettingsError, match="TRELLIS_INSTALLER_PROXY_SECRET"):
        load(Settings)


@pytest.mark.parametrize(
    ("endpoint", "removes", "given"),
    [
        ("https://otel:4318", True, True),
        ("http://otel:4318", True, False),
        (None, True, False),
        (None, False, True),
    ],
)
def test_a_ca_is_there_for_what_is_fetched_and_for_spans_that_go_by_tls(
    endpoint: str | None, removes: bool, given: bool
) -> None:
    made = pod(job(SPEC, removes=removes, otlp_endpoint=endpoint, installer_ca_config_map="our-ca"))
    names = {item["name"] for item in made["containers"][0]["env"]}
    assert ("TRELLIS_INSTALLER_CA_FILE" in names) is given
    volumes = [volume for volume in made["volumes"] if volume["name"] == "ca"]
    assert [volume["configMap"]["optional"] for volume in volumes] == [True] * given


def test_a_removal_does_not_wait_for_the_secret_of_a_proxy() -> None:
    for removes, optional in ((False, None), (True, True)):
        env = pod(job(SPEC, removes=removes, installer_proxy_secret="proxy"))["containers"][0]["env"]
        [reference] = [item["valueFrom"]["secretKeyRef"] for item in env if item["name"] == "HTTPS_PROXY"]
        assert reference.get("optional") is optional


def test_nothing_is_set_by_default() -> None:
    assert "imagePullSecrets" not in json.dumps(job(SPEC))
    names = [variable["name"] for variable in pod(job(InstallSpec(())))["containers"][0]["env"]]
    assert names == ["NODE_ROOT", "TRELLIS_INSTALLER_SPEC"]
