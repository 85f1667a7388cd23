"""Breaks of the way to wasmCloud v2: what is lost, disclosed or changed on v1."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

TO_V2: Final = (
    Break(
        "a link without a translation is in no line of the report",
        "ADR 110: each part of a manifest is in an object or in a line of the report",
        "trellis_cli",
        "Links._not_translated",
        "self.record.note(link.place,",
        "self.record.done(link.place, why) if why else self.record.note(link.place,",
        "tests/unit/trellis_cli/test_to_v2.py::test_a_provider_without_a_plugin_is_reported_with_the_ways_out",
    ),
    Break(
        "an application that runs nothing on v2 has no line",
        "ADR 110: each part of the manifest is in an object or in a line of the report",
        "trellis_cli",
        "_Conversion.result",
        "if not workloads:",
        "if workloads is None:",
        "tests/unit/trellis_cli/test_to_v2.py::test_an_application_that_runs_nothing_on_v2_is_reported",
    ),
    Break(
        "two components with different backends share an entry",
        "ADR 110: no component is connected to the data of another one",
        "trellis_cli",
        "_merged",
        "if any(entry.config.get(key) != need.config.get(key) for key in compared):",
        "if any(entry.config.get(key) != need.config.get(key) for key in compared - compared):",
        "tests/unit/trellis_cli/test_to_v2.py::test_no_component_is_connected_to_the_backend_of_another_one",
    ),
    Break(
        "an address with a password is written to a workload",
        "ADR 110: credentials in settings are not written to an object",
        "trellis_cli",
        "settings_of",
        "if _may_contain_credentials(value):",
        'if "@@" in value:',
        "tests/unit/trellis_cli/test_to_v2.py::test_an_address_with_a_password_is_read_from_a_secret_and_shown_nowhere",
    ),
    Break(
        "a Secret of another namespace is referenced by its name",
        "ADR 110: Secrets are referenced only in the namespace of the workload",
        "trellis_cli",
        "Secrets.unreadable",
        "if namespace != self.namespace:",
        "if not namespace:",
        "tests/unit/trellis_cli/test_to_v2.py::test_a_secret_that_v2_cannot_read_is_not_referenced",
    ),
    Break(
        "v2 takes the Service of v1",
        "ADR 110: while service_reflector has the name of the Service, v2 has another one",
        "trellis_cli",
        "name_on_v2",
        "if plain not in reflected:",
        "if plain not in reflected or plain:",
        "tests/unit/trellis_cli/test_to_v2.py::test_the_service_of_v1_is_never_in_the_output",
    ),
    Break(
        "two listeners with one host get requests of each other",
        "ADR 110: of two listeners of an application with one host, the second one has a Host header of its own",
        "trellis_cli",
        "_Conversion._with_own_host",
        "if name not in self.hosts",
        "if name",
        "tests/unit/trellis_cli/test_to_v2.py::"
        "test_of_two_listeners_with_one_host_the_second_one_gets_its_own_and_is_reported",
    ),
    Break(
        "an object of another owner is changed",
        "ADR 110: only objects with the label of the same application are changed",
        "trellis_cli",
        "refusals",
        "elif present is not None and (reason := _refusal(target, present, owners)):",
        "elif present is None and (reason := _refusal(target, {'metadata': {'namespace': ''}}, owners)) is None:",
        "tests/unit/trellis_cli/test_to_v2_command.py::test_an_object_of_another_owner_stops_everything",
    ),
    Break(
        "an object that appears after the check is adopted",
        "ADR 110: only objects with the label of the same application are changed",
        "trellis_cli",
        "_apply",
        "same_object = _NO_OBJECT if found is None else",
        "same_object = {} if found is None else",
        "tests/unit/trellis_cli/test_to_v2_command.py::test_an_object_that_appears_after_the_check_is_not_changed",
    ),
    Break(
        "a route that was not requested counts as equal",
        "ADR 110: both sides are requested within a bounded time",
        "trellis_cli",
        "Comparison.difference",
        "if problems:",
        "if len(problems) > 2:",
        "tests/unit/trellis_cli/test_to_v2_command.py::test_a_check_ends_in_time",
    ),
)
