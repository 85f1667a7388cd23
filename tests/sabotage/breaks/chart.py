"""Breaks of the Helm chart: values, and upgrades that Kubernetes would refuse half-way."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import CHART, Break

_OPTIONS: Final = "tests/contract/test_chart_options.py"
_PODS: Final = "tests/contract/test_chart_pods.py"
_PARTS: Final = "tests/contract/test_chart_parts.py"
_SETTINGS: Final = "tests/contract/test_chart_settings.py"
_UPGRADES: Final = "tests/contract/test_chart_upgrades.py"
_REFUSED: Final = "install: an invalid value is refused by its name before anything is applied"

VALUES: Final = (
    Break(
        "a key without a value disables a service",
        _REFUSED,
        CHART,
        "trellis.defaultsCheck",
        'if kindIs "invalid" $found',
        'if kindIs "slice" $found',
        f"{_OPTIONS}::test_a_key_that_needs_a_value_is_refused_by_its_name",
    ),
    Break(
        "a variable of Trellis in extraEnv replaces the value of the chart",
        _REFUSED,
        CHART,
        "trellis.check",
        'if hasPrefix "TRELLIS_" .name',
        'if eq "TRELLIS_" .name',
        f"{_OPTIONS}::test_values_that_cannot_be_are_refused_by_their_name",
    ),
    Break(
        "privileged Jobs run in the namespace of the services",
        "security: the provisioner can create Jobs only in the namespace of the installers",
        CHART,
        "trellis.check",
        "if eq $v.installers.namespace .Release.Namespace",
        'if eq $v.installers.namespace ""',
        f"{_PODS}::test_values_that_do_not_go_together_are_refused",
    ),
    Break(
        "any text is a CPU quantity of the installers",
        _REFUSED,
        "provisioner",
        "Settings",
        "installer_cpu: Cpu",
        "installer_cpu: str",
        f"{_SETTINGS}::test_the_chart_accepts_every_value_that_a_service_accepts",
    ),
    Break(
        "any text is a memory quantity of the installers",
        _REFUSED,
        "provisioner",
        "Settings",
        "installer_memory: Memory",
        "installer_memory: str",
        f"{_SETTINGS}::test_the_chart_accepts_every_value_that_a_service_accepts",
    ),
    Break(
        "metrics of Jaeger are open to all clients if none is listed",
        "security: network policies permit only the listed connections",
        CHART,
        "jaeger.yaml",
        "if and .Values.monitoring.from (or",
        "if and true (or",
        f"{_PARTS}::test_without_clients_nothing_may_scrape_the_parts",
    ),
)

UPGRADES: Final = (
    Break(
        "another size of a volume is applied half-way",
        _REFUSED,
        CHART,
        "trellis.claimCheck",
        '(eq (include "trellis.bytes" $has.size) (include "trellis.bytes" .storage.size))',
        "true",
        f"{_UPGRADES}::test_another_volume_of_a_stateful_set_is_refused",
    ),
    Break(
        "another StorageClass of a volume is applied half-way",
        _REFUSED,
        CHART,
        "trellis.claimCheck",
        '(eq $has.storageClassName (.storage.storageClassName | default ""))',
        "true",
        f"{_UPGRADES}::test_another_volume_of_a_stateful_set_is_refused",
    ),
    Break(
        "a StatefulSet without a volume gets one half-way",
        _REFUSED,
        CHART,
        "trellis.claimCheck",
        "$same := eq (empty $has) (empty .storage)",
        "$same := true",
        f"{_UPGRADES}::test_another_volume_of_a_stateful_set_is_refused",
    ),
    Break(
        "the volumes of the NATS for lattices are not compared",
        _REFUSED,
        CHART,
        "lattice-nats.yaml",
        '"name" $name "storage" $its.storage',
        '"name" "" "storage" $its.storage',
        f"{_UPGRADES}::test_another_volume_of_a_stateful_set_is_refused",
    ),
    Break(
        "the same size in another unit is another size",
        "install: an upgrade without a change of the volumes is applied",
        CHART,
        "trellis.claimCheck",
        '(eq (include "trellis.bytes" $has.size) (include "trellis.bytes" .storage.size))',
        "(eq $has.size .storage.size)",
        f"{_UPGRADES}::test_the_same_size_in_another_unit_is_no_change",
    ),
    Break(
        "fewer servers of the bus lose stored messages",
        "install: a change that would lose stored messages is refused",
        CHART,
        "trellis.natsCheck",
        "if and $there (ne $has (int $nats.replicas))",
        "if and $there (lt $has (int $nats.replicas))",
        f"{_UPGRADES}::test_another_number_of_servers_is_refused",
    ),
    Break(
        "another nameOverride is applied half-way",
        _REFUSED,
        CHART,
        "trellis.check",
        "if and $has (ne $has $wanted)",
        "if and $has (empty $wanted)",
        f"{_UPGRADES}::test_another_name_of_an_installation_is_refused_with_the_present_one",
    ),
    Break(
        "the namespace of another release is taken for the installers",
        _REFUSED,
        CHART,
        "namespace.yaml",
        "if and $there (ne $owner $ours)",
        'if and $there (eq $owner "/")',
        f"{_UPGRADES}::test_an_object_of_the_whole_cluster_that_another_release_has_is_refused",
    ),
    Break(
        "the CRDs of another release are replaced",
        "install: an existing CRD of another owner is refused",
        CHART,
        "definitions.yaml",
        "if and $there (ne $owner $ours)",
        'if and $there (eq $owner "/")',
        f"{_UPGRADES}::test_an_object_of_the_whole_cluster_that_another_release_has_is_refused",
    ),
    Break(
        "a release of the same name in another namespace is the same release",
        "install: an existing CRD of another owner is refused",
        CHART,
        "trellis.releaseOf",
        'get $found "meta.helm.sh/release-namespace"',
        'and $found "trellis-system"',
        f"{_UPGRADES}::test_an_object_of_the_whole_cluster_that_another_release_has_is_refused",
    ),
)
