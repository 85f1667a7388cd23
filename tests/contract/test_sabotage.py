"""Every break of the product has its place and its test, and docs/sabotage.md has every break."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from sabotage.breaking import CHART, SOURCES, Break, MisplacedError, copy_broken, misplaced
from sabotage.breaks import BREAKS
from sabotage.page import page

ROOT = Path(__file__).parents[2]
BROKEN = Break("x", "", "trellis", "free", "used < limit", "used <= limit", "")
SOURCE = """
def free(used, limit):
    return used < limit


class Others:
    def free(self, used, limit):
        return used < limit
"""


TEMPLATES = """
{{- define "trellis.free" -}}
{{- if lt .used .limit }}free{{ end -}}
{{- end -}}

{{- define "trellis.others" -}}
{{- if lt .used .limit }}free{{ end -}}
{{- end -}}
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "shared/trellis").mkdir(parents=True)
    (tmp_path / "shared/trellis/slots.py").write_text(SOURCE)
    (tmp_path / "shared/trellis/other.py").write_text("")
    (tmp_path / "services").mkdir()
    return tmp_path


def test_the_committed_page_is_the_generated_one() -> None:
    assert (ROOT / "docs/sabotage.md").read_text() == page(ROOT), "run make generate"


def test_every_break_is_in_place() -> None:
    assert misplaced(BREAKS, ROOT) == []


def test_every_break_has_a_name_of_its_own_and_changes_one_line() -> None:
    assert [name for name, count in Counter(item.name for item in BREAKS).items() if count > 1] == []
    assert [item.name for item in BREAKS if "\n" in item.old + item.new or item.old == item.new] == []


def test_every_break_names_a_test_that_is_there() -> None:
    tests: dict[str, set[str]] = {}
    for item in BREAKS:
        file, _, name = item.test.partition("::")
        if file not in tests:
            found = ast.walk(ast.parse((ROOT / file).read_text()))
            tests[file] = {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in tests[file], item.name


def test_there_are_enough_and_each_service_has_its_part() -> None:
    assert len(BREAKS) >= 60
    counts = Counter(item.package for item in BREAKS)
    services = {folder.name for folder in (ROOT / SOURCES[0]).iterdir() if (folder / "app.py").exists()}
    assert {service for service in services | {"node_installer"} if counts[service] < 4} == set()


def test_a_break_changes_its_function_and_leaves_all_else_as_it_is(
    sources: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("broken")
    copy_broken(BROKEN, sources, place)
    assert (place / "shared/trellis/slots.py").read_text() == SOURCE.replace("used < limit", "used <= limit", 1)
    assert (place / "shared/trellis/other.py").is_symlink()
    assert (place / "services").is_symlink()
    assert (sources / "shared/trellis/slots.py").read_text() == SOURCE


@pytest.mark.parametrize("function", ["trellis.free", "other.yaml"])
def test_a_break_changes_a_template_of_the_chart_or_a_file_without_one(
    sources: Path, tmp_path_factory: pytest.TempPathFactory, function: str
) -> None:
    place, folder = tmp_path_factory.mktemp("broken"), Path("deploy/helm/trellis/templates")
    texts = {"_slots.tpl": TEMPLATES, "other.yaml": "{{ if lt .used .limit }}x: y{{ end }}"}
    (sources / folder).mkdir(parents=True)
    for name, text in texts.items():
        (sources / folder / name).write_text(text)
    copy_broken(Break("x", "", CHART, function, "lt .used .limit", "true", ""), sources, place)
    changed = {name: (place / folder / name).read_text() for name in texts}
    name = "other.yaml" if function == "other.yaml" else "_slots.tpl"
    assert changed == {**texts, name: texts[name].replace("lt .used .limit", "true", 1)}


@pytest.mark.parametrize(
    "change",
    [{"old": "used > limit"}, {"function": "Others.taken"}, {"package": "console"}, {"old": "used"}],
    ids=["another text", "another function", "another package", "twice"],
)
def test_a_break_that_has_lost_its_place_is_named(sources: Path, change: dict[str, str]) -> None:
    broken = replace(BROKEN, **change)  # type: ignore[arg-type]
    assert len(misplaced([broken], sources)) == 1
    with pytest.raises(MisplacedError):
        copy_broken(broken, sources, sources)
