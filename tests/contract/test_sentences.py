"""Tests compare reasons, fields, codes and effects: a change of wording breaks none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.suite.sentences import FIXED, GUARDED, ROOT, findings, is_prose, of_folders

FILE = "test_x.py"


def found(text: str) -> list[str]:
    """Return the texts that are found in a test file."""
    return [finding.text for finding in findings(text, FILE)]


def test_no_guarded_test_compares_a_sentence() -> None:
    assert [str(of_folder) for of_folder in of_folders(GUARDED)] == []


def test_every_guarded_folder_is_there() -> None:
    assert [folder for folder in GUARDED if not (ROOT / folder).is_dir()] == []


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        ("there is no version", True),
        ("There is none.", True),
        ("x-1: It was deleted, and so on", True),
        ("shop/a cannot be rolled back to v1", True),
        ("no version", False),
        ("spec.nodeSelector is required", False),
        ("Node web Ready condition", False),
        ("run `trellis apps list of all`", False),
        ("run trellis apps rollback shop", False),
        ("trellis apps rollback shop and wait for it", True),
        ("kubectl -n shop delete pod web", False),
        ("[Errno 2] No such file or directory: 'x'", False),
    ],
)
def test_prose_is_three_plain_words_in_a_row(text: str, prose: bool) -> None:
    assert is_prose(text) is prose


@pytest.mark.parametrize(
    "line",
    [
        "assert 'there is none' in text",
        "assert text == f'{name}: there is none'",
        "assert rows == [Row('a', message='there is none')]",
        "assert text.startswith('there is none')",
        "assert re.search('there is none', text)",
        "assert all('there is none' in text for text in texts)",
        "with pytest.raises(ValueError, match='there is none'): pass",
        "words = 'there is none'; assert words in text",
        "for words in ('there is none', 'x'):\n  assert words in text",
        "@mark.parametrize('key, words', [(1, 'there is none')])\ndef test(key, words):\n  assert words in text(key)",
        "@pytest.mark.parametrize('words', ['there is none'])\ndef test(words):\n  with raises(E, match=words): pass",
        "await until(lambda: 'there is none' in text)",
        "assert lacking(text, 'x', 'there is none') == []",
        "T = {'x': ['there is none']}\n@parametrize('words, ', T.values())\ndef test(words):\n  assert words in text",
        "for key, words in {'x': 'there is none'}.items():\n  assert words in text(key)",
    ],
)
def test_a_compared_sentence_is_found(line: str) -> None:
    assert [item.partition("there")[1] for item in found(line)] == ["there"]


@pytest.mark.parametrize(
    "line",
    [
        "assert parse('there is none') == []",
        "assert ready, 'there is none'",
        "say('for there is none'); assert 'there is none' in heard()",
        "fail('there is none'); assert heard() == 'Failed: there is none'",
        "words = 'there is none'; say(words); assert words in heard()",
        "@pytest.mark.parametrize('words', ['there is none'])\ndef test(words):\n  assert parse(words) == words",
        "def test():\n  '''There is none.'''",
    ],
)
def test_an_input_of_a_test_is_no_wording_of_the_product(line: str) -> None:
    assert found(line) == []


def test_every_fixed_text_is_in_lower_case_and_has_a_reason_and_a_test_that_compares_it() -> None:
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path.name != Path(__file__).name]
    written = "\n".join(path.read_text(encoding="utf-8") for path in tests).lower()
    assert [text for text, reason in FIXED.items() if not reason or text not in written] == []
