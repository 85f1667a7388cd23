"""No value ever becomes a part of a shell's line: programs get arguments, and scripts are constants."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart.rendered import rendered
from trellis_dev.localcluster import requirements

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("services", "shared", "deploy", "bench") for path in (ROOT / folder).rglob("*.py"))
SHELL = re.compile(r"(?:^|/)(?:ba|da|a|z|k)?sh$")
SCRIPT = re.compile(r"^-[a-z]*c$")
CALLS = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell", "subprocess_shell"}
NO_PROGRAM = {"get_completion_script"}
"""Functions that start no program; their ``shell`` is its name."""
EXCUSE = re.compile(r"# noqa: (?P<rules>[A-Z0-9, ]*\bS[0-9]{3}\b[A-Z0-9, ]*)(?P<reason>.*)$")


def constants(tree: ast.Module) -> set[str]:
    """Return the names of a module that stand for a text without any value in it, also as part of a table."""
    found: set[str] = set()
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if targets and not any(isinstance(part, ast.JoinedStr | ast.Call | ast.BinOp) for part in ast.walk(node)):
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def wrongs(text: str, allowed: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield what gives a shell a line that could hold a value. ``allowed``: names that are declared as constants."""
    tree = ast.parse(text)
    fixed = constants(tree) | allowed
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in CALLS:
                yield f"line {node.lineno}: {name}"
            for keyword in node.keywords:
                if keyword.arg == "shell" and name not in NO_PROGRAM and not _is_false(keyword.value):
                    yield f"line {node.lineno}: shell="
        if isinstance(node, ast.List | ast.Tuple):
            yield from _of_arguments(node.elts, fixed)


def _of_arguments(items: list[ast.expr], fixed: set[str]) -> Iterator[str]:
    for at, item in enumerate(items[:-2]):
        shell, option, line = item, items[at + 1], items[at + 2]
        if not (isinstance(shell, ast.Constant) and isinstance(shell.value, str) and SHELL.search(shell.value)):
            continue
        if not (isinstance(option, ast.Constant) and isinstance(option.value, str) and SCRIPT.match(option.value)):
            continue
        is_constant = isinstance(line, ast.Constant) or (isinstance(line, ast.Name) and line.id in fixed)
        if not is_constant:
            yield f"line {item.lineno}: {shell.value} {option.value} of {ast.unparse(line)}"


SUSPECT = re.compile(r"shell|system|popen|getoutput|getstatusoutput|sh[\"']")
# What a row of a table of constants is called where it is used.
OF_A_TABLE = {"devtools/trellis_dev/localcluster/requirements.py": frozenset({"trial"})}


def test_no_program_gives_a_shell_a_line_with_values() -> None:
    found = []
    for path in SOURCES:
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        if SUSPECT.search(text):
            found += [f"{name}: {wrong}" for wrong in wrongs(text, OF_A_TABLE.get(name, frozenset()))]
    assert found == []


def test_the_table_whose_rows_are_run_is_one_of_constants() -> None:
    tree = ast.parse(inspect.getsource(requirements))
    assert "_TRIALS" in constants(tree)


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run(line, shell=True)",
        "subprocess.run(line, shell=yes)",
        "os.system(line)",
        "asyncio.create_subprocess_shell(line)",
        'run(["sh", "-c", f"rm {path}"])',
        'run(["/bin/sh", "-ec", "rm " + path])',
        'run(("bash", "-c", line))',
        'LINE = f"rm {path}"\nrun(["sh", "-c", LINE])',
        'LINE = "rm {}".format(path)\nrun(["sh", "-c", LINE])',
    ],
)
def test_an_unsafe_call_of_a_shell_is_found(text: str) -> None:
    assert list(wrongs(text))


@pytest.mark.parametrize(
    "text",
    [
        'run(["sh", "-c", "exec \\"$@\\"", "sh", *arguments])',
        'LINE = "exec $1"\nrun(["sh", "-ec", LINE, path])',
        'run(["ls", path])',
    ],
)
def test_a_safe_call_is_not_found(text: str) -> None:
    assert list(wrongs(text)) == []


def test_no_rule_of_security_is_excused_without_a_reason() -> None:
    found = []
    for path in SOURCES:
        if path.is_relative_to(ROOT / "bench") or path.is_relative_to(ROOT / "deploy"):
            continue  # commands of developers: these rules are not on there
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            excused = EXCUSE.search(line)
            if excused is not None and len(excused["reason"].strip(" -()")) <= 3:
                found.append(f"{path.relative_to(ROOT)}:{number}: say why {excused['rules'].strip()}")
    assert found == []


def commands(found: Any) -> Iterator[list[str]]:
    """Yield every command and its arguments in manifests."""
    if isinstance(found, dict):
        whole = [*(found.get("command") or ()), *(found.get("args") or ())]
        if whole and all(isinstance(text, str) for text in whole):
            yield whole
        for value in found.values():
            yield from commands(value)
    elif isinstance(found, list):
        for value in found:
            yield from commands(value)


@pytest.mark.parametrize(
    "values",
    [{}, {"mode": "bundle"}, {"wadm": {"enabled": True}, "latticeNats": {"enabled": True}}],
    ids=["by default", "bundle", "with wadm"],
)
def test_no_pod_of_the_chart_runs_a_shell(values: dict[str, Any]) -> None:
    found = [command for item in rendered(**values) for command in commands(item)]
    assert found
    for command in found:
        assert not [text for text in command if SHELL.search(text)], command


def test_a_line_of_a_shell_in_the_compose_file_holds_no_variable() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    for name, item in services.items():
        texts = [*(item.get("entrypoint") or ()), *(item.get("command") or ())]
        if any(SHELL.search(text) for text in texts):
            assert not [text for text in texts if "$" in text], name


@pytest.mark.parametrize("name", ["services.Dockerfile", "installer.Dockerfile"])
def test_no_argument_of_an_image_is_part_of_a_line_that_is_run(name: str) -> None:
    text = (ROOT / "deploy" / "images" / name).read_text(encoding="utf-8").replace("\\\n", " ")
    arguments = re.findall(r"^ARG ([A-Z]+)", text, re.MULTILINE)
    assert arguments
    for line in re.findall(r"^RUN .*$", text, re.MULTILINE):
        assert not [argument for argument in arguments if re.search(rf"\$\{{?{argument}\b", line)], line
