"""Pages that Vale reads, scopes that are checked, and findings as they are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trellis_dev.localcluster import tools
from trellis_tools.language import __main__ as command
from trellis_tools.language import findings
from trellis_tools.language.__main__ import Scope, main
from trellis_tools.language.findings import Finding, counts, parse
from trellis_tools.language.pages import Page, pages

ROOT = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a page and a module."""
    files = {
        "README.md": "# Trellis\n",
        "docs/bus.md": "# Bus\n",
        "docs/adr/0001-x.md": "# X\n",
        "docs/reference/commands.md": "# Commands\n",
        "docs/reference/crds/shim.md": "# Shim\n",
        "services/a/domain/decide.py": '"""Decide."""\nX = "no node has it"\n_log.info("node ready")\n',
        "services/trellis_cli/b.py": "X = 'no node has it'\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_each_text_is_on_one_page_of_one_area(root: Path) -> None:
    assert [(page.area, page.source) for page in pages(root)] == [
        ("readme", "README.md"),
        ("cli", "docs/reference/commands.md"),
        ("adr", "docs/adr/0001-x.md"),
        ("docs", "docs/bus.md"),
        ("conditions", "services/a/domain/decide.py"),
        ("docstrings", "services/a/domain/decide.py"),
        ("logs", "services/a/domain/decide.py"),
        ("cli", "services/trellis_cli/b.py"),
    ]


def test_markdown_is_read_as_it_is_and_other_files_by_their_texts(root: Path) -> None:
    texts = {page.area: page.text for page in pages(root) if page.source.startswith(("README", "services/a"))}
    assert texts["readme"] is None
    assert texts["logs"] == "\n\n- node ready\n"


def test_every_kind_of_file_is_found_in_this_repository() -> None:
    areas = {page.area for page in pages(ROOT)}
    assert areas == {
        *("readme", "docs", "adr", "cli", "crds", "events", "chart", "examples", "console", "sdk"),
        *("conditions", "logs", "metrics", "exceptions", "messages", "docstrings"),
    }


@pytest.mark.parametrize(
    ("scope", "page", "inside"),
    [
        (Scope("docs"), Page("docs", "docs/bus.md"), True),
        (Scope("docs/"), Page("docs", "docs/bus.md"), True),
        (Scope("docs/bus.md"), Page("docs", "docs/bus.md"), True),
        (Scope("docs/bus"), Page("docs", "docs/bus.md"), False),
        (Scope("."), Page("docs", "docs/bus.md"), True),
        (Scope("services", frozenset({"logs"})), Page("logs", "services/a.py"), True),
        (Scope("services", frozenset({"logs"})), Page("docstrings", "services/a.py"), False),
    ],
)
def test_a_scope_is_a_file_or_a_folder_and_its_areas(scope: Scope, page: Page, inside: bool) -> None:
    assert scope.has(page) is inside


@pytest.fixture
def vale(monkeypatch: pytest.MonkeyPatch) -> list[Page]:
    """A Vale that finds something on line 3 of each page; returns the pages that it was given."""
    given: list[Page] = []

    def found(_vale: Path, _root: Path, wanted: list[Page]) -> list[Finding]:
        given.extend(wanted)
        return [Finding(page.source, 3, "Trellis.Terms", page.area, "Use 'event'.") for page in wanted]

    monkeypatch.setattr(tools, "ensure", lambda name, _progress: Path(name))
    monkeypatch.setattr(command, "check_rules", lambda *_: None)
    monkeypatch.setattr(command, "findings", found)
    return given


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], {"readme", "adr", "docs", "cli", "conditions", "docstrings", "logs"}),
        (["docs"], {"adr", "docs", "cli"}),
        (["docs", "--area", "adr"], {"adr"}),
        (["services/a"], {"conditions", "docstrings", "logs"}),
    ],
)
def test_all_texts_or_those_of_a_path_are_checked(
    root: Path, vale: list[Page], capsys: pytest.CaptureFixture[str], arguments: list[str], wanted: set[str]
) -> None:
    assert main([str(root), *arguments]) == 1
    assert {page.area for page in vale} == wanted
    assert capsys.readouterr().err.count(":3: Trellis.Terms (") == len(vale)


def test_counts_are_of_all_texts_and_no_failure(
    root: Path, vale: list[Page], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(root), "--counts"]) == 0
    assert len(vale) == 8
    assert capsys.readouterr().err.splitlines()[-1].split()[-1] == "8"


def test_a_path_without_texts_is_an_error(root: Path, vale: list[Page]) -> None:
    assert main([str(root), "nowhere"]) == 2
    assert vale == []


def test_a_finding_names_the_source_and_not_the_file_that_was_read() -> None:
    alert = {"Line": 3, "Check": "Trellis.Terms", "Message": "Use 'event' instead of 'fact'.", "Match": "fact"}
    found = parse(json.dumps({"/tmp/x/logs/a.py.md": [alert]}), {"/tmp/x/logs/a.py.md": Page("logs", "a.py", "")})
    assert list(map(str, found)) == ["a.py:3: Trellis.Terms (logs): Use 'event' instead of 'fact'."]


def test_a_vale_that_fails_is_an_error_with_its_output(root: Path) -> None:
    vale = root / "vale"
    vale.write_text("#!/bin/sh\necho broken >&2\nexit 2\n")
    vale.chmod(0o755)
    with pytest.raises(findings.ValeError, match="broken"):
        findings.check_rules(vale, root)


def test_findings_come_from_the_files_that_vale_read(root: Path) -> None:
    vale = root / "vale"
    alert = '{"Line": 1, "Check": "T.A", "Message": "m"}'
    vale.write_text(f"#!/bin/sh\nfor last; do :; done\nprintf '{{\"%s\": [%s]}}' \"$last\" '{alert}'\n")
    vale.chmod(0o755)
    found = findings.findings(vale, root, [Page("logs", "a.py", "- x\n")])
    assert found == [Finding("a.py", 1, "T.A", "logs", "m")]


def test_counts_have_a_row_for_each_rule_and_a_column_for_each_area() -> None:
    found = [Finding("a", 1, "T.A", "logs", ""), Finding("a", 2, "T.A", "docs", ""), Finding("a", 3, "T.B", "docs", "")]
    table = [row.split() for row in counts(found).splitlines()]
    assert table == [
        ["rule", "docs", "logs", "all"],
        ["T.A", "1", "1", "2"],
        ["T.B", "1", "0", "1"],
        ["all", "2", "1", "3"],
    ]
