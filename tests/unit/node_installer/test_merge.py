"""Merging by meaning: for any configuration, what was there stays, and taking ours away gives the same bytes."""

from __future__ import annotations

import copy
import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from node_installer.containerd import config, toml_tables, toml_text
from node_installer.containerd.entries import Entry, option_value, render
from node_installer.domain.errors import InstallError

KEYS = st.text("abcXYZ019_-.é \"'[]#", min_size=1, max_size=8)
SCALARS = (
    st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=20)
)
VALUES = st.recursive(
    SCALARS | st.lists(SCALARS, max_size=3), lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
OPTIONS = st.dictionaries(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,10}", fullmatch=True),
    st.sampled_from(["true", "3", '"x"', "plain", "a = b", "[1, 2]", "x\ny", '"', "\\"]) | st.text(max_size=12),
    max_size=3,
)
HANDLERS = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z]", fullmatch=True).filter(lambda name: name != "runc")
ENTRIES = st.lists(
    st.builds(Entry, HANDLERS, st.just("/opt/trellis/bin/x"), OPTIONS),
    min_size=1,
    max_size=3,
    unique_by=lambda e: e.handler,
)

# Drawing a document costs ten times what merging it does.
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A configuration file: some version, some CRI section, unknown things, comments, endings and line ends."""
    version = draw(st.sampled_from([None, 1, 2, 3, 4]))
    plugin = draw(st.sampled_from([toml_tables.CRI_V1, toml_tables.CRI_V2, toml_tables.CRI_V3]))
    document: dict[str, Any] = {} if version is None else {"version": version}
    document |= draw(st.dictionaries(KEYS.filter(lambda key: key not in ("plugins", "version")), VALUES, max_size=4))
    if draw(st.booleans()):
        section: dict[str, Any] = draw(
            st.dictionaries(KEYS.filter(lambda key: key != "containerd"), VALUES, max_size=2)
        )
        section["containerd"] = {"runtimes": {"runc": {"runtime_type": "io.containerd.runc.v2"}}}
        document["plugins"] = {plugin: section}
    text = tomlkit.dumps(document)
    lines = text.splitlines(keepends=True)
    comments = draw(
        st.lists(st.tuples(st.integers(0, 50), st.sampled_from(["# a comment\n", "\n", "  # [x]\n"])), max_size=4)
    )
    for position, comment in comments:
        lines.insert(min(position, len(lines)), comment)
    text = "".join(lines)
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return text.rstrip("\r\n") if draw(st.booleans()) else text


@few
@given(documents(), ENTRIES)
def test_the_rest_keeps_its_meaning_and_the_section_of_trellis_has_its_own(text: str, entries: list[Entry]) -> None:
    before = tomllib.loads(text)
    new = config.merged(text, entries, path="f")
    after = tomllib.loads(new)
    runtimes = after["plugins"][config.plugin_of(before)]["containerd"]["runtimes"]
    for entry in entries:
        assert runtimes.pop(entry.handler) == entry.value()
    assert _pruned(after) == _pruned(before)


@few
@given(documents(), ENTRIES)
@example("", [Entry("aa", "/opt/trellis/bin/x", {"A": "\x85#"})])  # U+0085 ends a line for Python, not for TOML
def test_merging_again_changes_nothing(text: str, entries: list[Entry]) -> None:
    new = config.merged(text, entries, path="f")
    assert config.merged(new, entries, path="f") == new


@few
@given(documents(), ENTRIES, ENTRIES)
def test_removing_the_section_of_trellis_restores_the_same_bytes(
    text: str, first: list[Entry], then: list[Entry]
) -> None:
    assume(toml_text.section_of(text) is None)
    new = config.merged(config.merged(text, first, path="f"), then, path="f")
    assert config.merged(new, [], path="f") == text


@few
@given(documents(), ENTRIES, st.sampled_from(["# by hand\n", 'zz-by-hand = "x"\n', "\n"]))
def test_concurrent_edits_stay_byte_for_byte(text: str, entries: list[Entry], edit: str) -> None:
    assume("zz-by-hand" not in text)
    new = config.merged(text, entries, path="f")
    assert config.merged(edit + new, [], path="f") == edit + text


@given(st.text("ab\n\r#[]", max_size=30), st.lists(st.sampled_from(["x = 1\n", "[t]\n", "# c\n"]), min_size=1))
def test_a_section_goes_without_a_trace_from_any_text(text: str, lines: list[str]) -> None:
    assert toml_text.without_section(toml_text.with_section(text, "".join(lines))) == text


@few
@given(documents(), HANDLERS)
def test_a_table_is_cut_out_and_nothing_else(text: str, handler: str) -> None:
    before = tomllib.loads(text)
    plugin = config.plugin_of(before)
    assume(handler not in config.runtimes_of(before))
    ours = config.merged(text, [Entry(handler, "/opt/kwasm/bin/x", {"a": "1"})], path="f")
    bare = ours.replace(ours.splitlines()[0], "") if toml_text.section_of(ours) is None else ours
    without_marks = "".join(line for line in bare.splitlines(keepends=True) if "trellis-node-installer" not in line)
    cut = config.merged(without_marks, [], path="f", adopted=[handler])
    assert _pruned(tomllib.loads(cut)) == _pruned(before)
    assert plugin


@given(OPTIONS)
def test_options_mean_the_same_after_writing(options: dict[str, str]) -> None:
    entry = Entry("spin", "/x", options)
    table = tomllib.loads(render([entry], toml_tables.CRI_V3))["plugins"][toml_tables.CRI_V3]["containerd"]["runtimes"][
        "spin"
    ]
    assert table == entry.value()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("3", 3), ('"a"', "a"), ("a", "a"), ("", ""), ('["x"]', ["x"]), ("1\nx = 2", "1\nx = 2"),
        ("{}", "{}"), ("2026-01-01", "2026-01-01"), ("nan nan", "nan nan"),
    ],
)  # fmt: skip
def test_an_option_is_a_toml_value_if_it_reads_as_one(text: str, value: object) -> None:
    assert option_value(text) == value
    assert type(option_value(text)) is type(value)


@pytest.mark.parametrize(
    ("document", "plugin"),
    [
        ({}, "cri"),
        ({"version": 1}, "cri"),
        ({"version": 2}, "io.containerd.grpc.v1.cri"),
        ({"version": 3}, "io.containerd.cri.v1.runtime"),
        ({"version": 4}, "io.containerd.cri.v1.runtime"),
        ({"version": 2, "plugins": {"io.containerd.cri.v1.runtime": {}}}, "io.containerd.cri.v1.runtime"),
        ({"version": 3, "plugins": {"io.containerd.grpc.v1.cri": {}}}, "io.containerd.cri.v1.runtime"),
    ],
)
def test_each_version_has_its_plugin(document: dict[str, Any], plugin: str) -> None:
    assert config.plugin_of(document) == plugin


@pytest.mark.parametrize("text", ["version = ", "a = 1\na = 2", "[x\n", "version = 2\n\ufeff"])
def test_a_configuration_that_containerd_cannot_read_is_refused(text: str) -> None:
    with pytest.raises(InstallError, match=r"\bTOML\b"):
        config.merged(text, [Entry("spin", "/x")], path="/etc/containerd/config.toml")


def test_lines_of_others_inside_the_section_of_trellis_stay() -> None:
    text = config.merged("version = 2\n", [Entry("spin", "/x")], path="f")
    lines = text.splitlines(keepends=True)
    foreign = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata]\nruntime_type = "k"\n'
    edited = "".join([*lines[:-1], foreign, lines[-1]])
    assert config.merged(edited, [], path="f") == "version = 2\n" + foreign


def test_headers_in_multi_line_strings_are_none() -> None:
    text = 'x = """\n[plugins.cri.containerd.runtimes.spin]\n"""\n[plugins.cri.containerd.runtimes.spin]\ny = 1\n[z]\n'
    cut = toml_text.cut_tables(text, ("plugins", "cri", "containerd", "runtimes", "spin"))
    assert cut == 'x = """\n[plugins.cri.containerd.runtimes.spin]\n"""\n[z]\n'


def _pruned(value: Any) -> Any:
    """Without tables that are empty: those that only a header of Trellis had made."""
    if not isinstance(value, dict):
        return value
    inner = {key: _pruned(item) for key, item in copy.copy(value).items()}
    return {key: item for key, item in inner.items() if item != {}}
