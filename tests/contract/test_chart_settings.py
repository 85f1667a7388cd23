"""The schema of the chart takes the settings that a service takes, and refuses those of another form before Helm acts.

A service is the oracle: what its settings class accepts, the schema has to accept.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft7Validator
from pydantic import ValidationError

from support.chart.rendered import CHART, ChartRefusedError, of, rendered
from trellis.config.settings import ServiceSettings
from trellis.services import SERVICES
from trellis_tools.chart import SET_BY_THE_CHART

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
OF_SERVICES = SCHEMA["properties"]["services"]["properties"]
TEXTS = [
    "x", "1", "0", "-1", "7", "1.5", "30s", "5m", "1h30m", "500ms", "2d", "0s", "true", "false", "20%", "101%", "512Mi",
    "2Gi", "1k", "info", "json", "text", "debug", "http://h:1", "https://h/p", "ftp://h", "http://u:p@h", "a,b", "A_B",
    "a-b", "a.b", "a/b", "10.0.0.0/8", "X-User", "two words", "much", "1e3",
]  # fmt: skip
TOLERANT = {"-1", "1e3"}
"""Python's own parsers take them; nobody writes them."""
FORMS: dict[str, tuple[str, list[Any]]] = {
    "TRELLIS_RETRY_MIN": ("provisioner", ["often", "5 minutes", "-5s", "0s", True, -1, 0]),
    "TRELLIS_SHUTDOWN_GRACE_PERIOD": ("hostManager", ["20x", []]),
    "TRELLIS_HALT_AFTER_FAILURES": ("provisioner", ["many", "1.5", -1, 2.5]),
    "TRELLIS_JOB_RETRIES": ("provisioner", [11]),
    "TRELLIS_INSTALLER_CPU": ("provisioner", ["some", "100 m", -1]),
    "TRELLIS_INSTALLER_MEMORY": ("provisioner", ["lots", "128MB"]),
    "TRELLIS_MAX_UNAVAILABLE": ("provisioner", ["half", "0", 0]),
    "TRELLIS_REQUIRE_CHECKSUM": ("provisioner", ["maybe", 3]),
    "TRELLIS_LOG_LEVEL": ("nodeWatcher", ["loud", 3]),
    "TRELLIS_LOG_FORMAT": ("nodeWatcher", ["xml"]),
    "TRELLIS_SECRETS_ENTITY_RATE": ("secretsBackend", ["fast", -1]),
    "TRELLIS_SECRETS_BACKEND": ("secretsBackend", ["a backend"]),
    "TRELLIS_SERVICE_NAMESPACES": ("serviceReflector", ["a b", "A"]),
    "TRELLIS_CONTROLLER_COMPILE_MEMORY": ("controllerHost", ["lots", "512MB", 1]),
    "TRELLIS_CONSOLE_URL": ("console", ["console.example.com"]),
    "TRELLIS_INSTALLER_HTTPS_PROXY": ("provisioner", ["http://user:password@proxy:3128"]),
}


def settings_of(service: str) -> dict[str, Any]:
    """Return the schema of each setting of a service that users may set."""
    properties = OF_SERVICES[service]["properties"]["settings"]["properties"]
    return {name: schema for name, schema in properties.items() if "const" not in schema}


def accepts(schema: dict[str, Any], value: object) -> bool:
    return bool(Draft7Validator({**schema, "definitions": SCHEMA["definitions"]}).is_valid(value))


def takes(model: type[ServiceSettings], name: str, text: str) -> bool:
    """Return whether a service accepts a text for a setting, as from its environment."""
    try:
        model(**{name: text})
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("service", SERVICES.values(), ids=lambda item: item.name)
def test_the_chart_accepts_every_value_that_a_service_accepts(service: Any) -> None:
    for variable, schema in settings_of(service.chart_key).items():
        name = variable.removeprefix("TRELLIS_").lower()
        refused = [text for text in TEXTS if text not in TOLERANT and not accepts(schema, text)]
        if "enum" in schema:
            refused = [text for text in refused if text not in {"1", "0"}]  # other words for true and false
        assert not [text for text in refused if takes(service.settings, name, text)], variable


@pytest.mark.parametrize("service", SERVICES.values(), ids=lambda item: item.name)
def test_each_setting_that_the_chart_does_not_set_has_a_schema_of_its_form(service: Any) -> None:
    found = settings_of(service.chart_key)
    wanted = {f"TRELLIS_{name.upper()}" for name in set(service.settings.model_fields) - SET_BY_THE_CHART}
    assert set(found) == wanted
    for variable, schema in found.items():
        assert "enum" in schema or "type" in schema, variable


@pytest.mark.parametrize(("service", "variable", "value"), [
    (service, variable, value) for variable, (service, values) in FORMS.items() for value in values
])  # fmt: skip
def test_a_value_of_another_form_is_refused_by_the_name_of_its_setting(
    service: str, variable: str, value: object
) -> None:
    with pytest.raises(ChartRefusedError, match=re.escape(f"services.{service}.settings.{variable}")):
        rendered(services={service: {"settings": {variable: value}}})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TRELLIS_RETRY_MIN", 10),
        ("TRELLIS_RETRY_MIN", "1h30m"),
        ("TRELLIS_MAX_UNAVAILABLE", 5),
        ("TRELLIS_MAX_UNAVAILABLE", "20%"),
        ("TRELLIS_REQUIRE_CHECKSUM", False),
        ("TRELLIS_REQUIRE_CHECKSUM", "false"),
        ("TRELLIS_HALT_AFTER_FAILURES", "0"),
        ("TRELLIS_INSTALLER_CPU", 1),
        ("TRELLIS_INSTALLER_CPU", "0.5"),
        ("TRELLIS_INSTALLER_MEMORY", "1.5Gi"),
        ("TRELLIS_INSTALLER_IMAGE", ""),
    ],
)
def test_a_value_is_taken_as_text_and_as_what_yaml_makes_of_it(variable: str, value: object) -> None:
    found = rendered(services={"provisioner": {"settings": {variable: value}}})
    deployment = of(found)["Deployment", "trellis-system", "trellis-provisioner"]
    [runs] = deployment["spec"]["template"]["spec"]["containers"]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    assert {"name": variable, "value": text} in runs["env"]
