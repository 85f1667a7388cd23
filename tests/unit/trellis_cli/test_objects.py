"""An object has the same names in every command, and those that kubectl accepts."""

from __future__ import annotations

import re

import pytest

from support.suite.naming import lacking
from trellis.config.settings import SettingsError
from trellis.crds.kinds import BY_DIRECTORY
from trellis_cli.common.objects import KINDS, ObjectName, read_kind, read_object
from trellis_cli.crds import chosen
from trellis_cli.explain.command import KINDS as EXPLAINED
from trellis_cli.top.command import SHEET_KINDS
from trellis_cli.trace.command import KINDS as TRACED

ALL = tuple(KINDS)


@pytest.mark.parametrize(
    ("words", "namespace", "found"),
    [
        ("node a", None, ObjectName("node", "a")),
        ("node/a", None, ObjectName("node", "a")),
        ("no a", None, ObjectName("node", "a")),
        ("NODES/a", None, ObjectName("node", "a")),
        ("WHC/a", "team", ObjectName("hostgroup", "a", "team")),
        ("wasmcloudhostconfigs/team/a", None, ObjectName("hostgroup", "a", "team")),
        ("wasmcloudhostconfig.k8s.wasmcloud.dev a", "team", ObjectName("hostgroup", "a", "team")),
        ("applications.core.oam.dev/a", None, ObjectName("application", "a")),
        ("svc a", None, ObjectName("service", "a")),
        ("wasmctl a", None, ObjectName("controller", "a")),
        ("po a", "team", ObjectName("pod", "a", "team")),
        ("deadletter 7", None, ObjectName("deadletter", "7")),
        ("ww/a", "team", ObjectName("workload", "a", "team")),
        ("workloads.runtime.wasmcloud.dev/a", None, ObjectName("workload", "a")),
        ("workloaddeployments a", None, ObjectName("workloaddeployment", "a")),
        ("whost a", None, ObjectName("whost", "a")),
        ("hosts.runtime.wasmcloud.dev/a", None, ObjectName("whost", "a")),
        ("Host.runtime.wasmcloud.dev a", None, ObjectName("whost", "a")),
        ("hosts a", None, ObjectName("host", "a")),
        ("artifact/team/a", None, ObjectName("artifact", "a", "team")),
    ],
)
def test_an_object_is_named_as_in_kubectl(words: str, namespace: str | None, found: ObjectName) -> None:
    assert read_object(words.split(), ALL, namespace) == found


def test_a_command_about_one_kind_takes_a_name_alone() -> None:
    for words in (["spin"], ["shim/spin"], ["shims", "spin"]):
        assert read_object(words, ["shim"], default="shim") == ObjectName("shim", "spin")
    with pytest.raises(SettingsError, match=r"\bnode\b.*\bshim\b"):
        read_object(["node/spin"], ["shim"], default="shim")


@pytest.mark.parametrize("words", ["node", "node/", "nodes/team/a", "shim/a/b/c", "node a b", "whc a/b", "node a/b"])
def test_words_that_name_no_object_are_refused_with_the_usage(words: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read_object(words.split(), ALL)
    assert lacking(raised.value, words.split(maxsplit=1)[0], "KIND NAME", "KIND/NAME", *ALL) == []


def test_one_namespace_is_enough() -> None:
    with pytest.raises(SettingsError):
        read_object(["whc/team/a"], ALL, "other")


@pytest.mark.parametrize(("word", "meant"), [("noed", "node"), ("sihm", "shim"), ("hostgruop", "hostgroup")])
def test_a_misspelt_kind_is_answered_with_the_right_one(word: str, meant: str) -> None:
    with pytest.raises(SettingsError, match=rf'"{re.escape(word)}".*"{meant}"'):
        read_kind(word, ALL)


@pytest.mark.parametrize(("word", "present"), [("group", "hostgroup"), ("letters", "deadletter")])
def test_a_former_name_is_refused_with_the_present_one(word: str, present: str) -> None:
    with pytest.raises(SettingsError, match=f'"{word}".*"{present}"'):
        read_kind(word, ALL)


def test_a_kind_that_the_command_does_not_take_is_refused_with_those_it_takes() -> None:
    with pytest.raises(SettingsError, match=r"\bnode, shim\b"):
        read_kind("svc", ["node", "shim"])


def test_every_custom_resource_has_its_plural_short_and_full_names() -> None:
    for kind in (kind for kinds in BY_DIRECTORY.values() for kind in kinds):
        found = {read_kind(item, ALL) for item in (kind.plural, *kind.short_names, kind.name, kind.model.__name__)}
        assert len(found) == 1, kind.name


def test_no_name_means_two_kinds_of_one_command() -> None:
    for accepted in (EXPLAINED, SHEET_KINDS):
        names = [name for kind in accepted for name in (KINDS[kind].name, *KINDS[kind].aliases)]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("word", ["pod", "pods", "po"])
def test_a_pod_is_a_pod_where_hosts_are_accepted_too(word: str) -> None:
    assert read_kind(word, TRACED) == "pod"
    assert read_kind("host", TRACED) == "host"


@pytest.mark.parametrize(
    ("word", "plural"),
    [("whc", "wasmcloudhostconfigs"), ("shim", "shims"), ("applications.core.oam.dev", "applications")],
)
def test_a_crd_has_the_names_of_its_kind(word: str, plural: str) -> None:
    assert [kind.plural for kind in chosen([word])] == [plural]


def test_a_word_names_the_kind_that_a_command_accepts() -> None:
    assert read_kind("po", ["host", "node"]) == "host"
    assert read_kind("po", ["pod", "node"]) == "pod"
    assert read_kind("deployment.apps", ["deployment"]) == "deployment"
    assert read_kind("spinapps.core.spinkube.dev", ["spinapp"]) == "spinapp"
    with pytest.raises(SettingsError):
        read_kind("deployment.batch", ["deployment"])
