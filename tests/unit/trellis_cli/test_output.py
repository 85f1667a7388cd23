"""Output for programs is one document; without a terminal a row is a line."""

from __future__ import annotations

import json

import pytest
import typer
import yaml
from rich.table import Table

from support.suite.naming import lacking
from trellis.config.settings import SettingsError
from trellis_cli.common.objects import printed_name
from trellis_cli.common.options import one_namespace
from trellis_cli.common.output import (
    Format,
    make_table,
    parser_of,
    print_document,
    print_manifests,
    print_result,
    yaml_of,
)

DOCUMENT = {"ok": True, "nodes": ["a", "b"], "note": "ä"}


def table(text: str) -> Table:
    made = make_table("NODE", "MESSAGE", fold={"MESSAGE"})
    made.add_row("a-long-name", "")
    made.add_row("b", text)
    return made


def test_without_a_terminal_a_row_is_one_line_without_padding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = "word " * 500 + "end"
    print_result(table(text), "[bold]last[/bold]")
    out = capsys.readouterr().out
    assert out.splitlines() == ["NODE         MESSAGE", "a-long-name", f"b            {text}", "[bold]last[/bold]"]


def test_headings_can_be_omitted(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(table("x"), no_headers=True)
    assert capsys.readouterr().out == "a-long-name\nb            x\n"


def test_documents_are_json_or_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    print_document(Format.JSON, DOCUMENT)
    assert json.loads(capsys.readouterr().out) == DOCUMENT
    print_document(Format.YAML, DOCUMENT)
    assert yaml.safe_load(capsys.readouterr().out) == DOCUMENT


def test_of_many_documents_each_can_be_read_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        print_document(Format.JSON, DOCUMENT, lines=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [DOCUMENT, DOCUMENT]
    for _ in range(2):
        print_document(Format.YAML, DOCUMENT, lines=True)
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == [DOCUMENT, DOCUMENT]


def test_manifests_are_what_kubectl_applies(capsys: pytest.CaptureFixture[str]) -> None:
    print_manifests(Format.YAML, [{"kind": "A"}, {"kind": "B"}])
    assert [item["kind"] for item in yaml.safe_load_all(capsys.readouterr().out)] == ["A", "B"]
    print_manifests(Format.JSON, [{"kind": "A"}])
    assert json.loads(capsys.readouterr().out)["kind"] == "List"


def test_a_format_that_a_command_does_not_have_is_refused() -> None:
    parse = parser_of(Format.TABLE, Format.YAML)
    for value in ("wide", "jsn"):
        with pytest.raises(typer.BadParameter) as raised:
            parse(value)
        assert lacking(raised.value.message, value, "table, yaml") == []
        assert "json" not in raised.value.message
    assert parse("YAML") is Format.YAML


@pytest.mark.parametrize(
    ("kind", "printed"),
    [
        ("node", "node/x"),
        ("shim", "shim.runtime.spinkube.dev/x"),
        ("hostgroup", "wasmcloudhostconfig.k8s.wasmcloud.dev/x"),
        ("controller", "wasmcontroller.trellis.dev/x"),
        ("host", "pod/x"),
    ],
)
def test_names_are_those_of_kubectl(kind: str, printed: str) -> None:
    assert printed_name(kind, "x") == printed


def test_all_namespaces_and_one_contradict_each_other() -> None:
    assert one_namespace("a", all_namespaces=False) == "a"
    assert one_namespace(None, all_namespaces=True) is None
    with pytest.raises(SettingsError, match=r"--all-namespaces.*--namespace"):
        one_namespace("a", all_namespaces=True)


@pytest.mark.parametrize(
    "text", ["1e3", "08", "0o14", "12e4567", "-1e3", "1_0", ".5", "y", "N", "yes", "null", "", "a\x85b", "a\u2028b"]
)
def test_yaml_quotes_a_string_that_kubectl_would_read_as_another_value(text: str) -> None:
    """The parser of kubectl is not the library's: reading the YAML with the library would not show the difference."""
    written = yaml_of({"key": text})
    assert written.removeprefix("key: ")[0] in "'\""
    assert "\x85" not in written
    assert "\u2028" not in written
    assert yaml.safe_load(written) == {"key": text}


def test_yaml_leaves_ordinary_strings_without_quotes() -> None:
    written = yaml_of({"image": "example.com/a:1", "ready": True, "count": 3}).splitlines()
    assert written == ["image: example.com/a:1", "ready: true", "count: 3"]
