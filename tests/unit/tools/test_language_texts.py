"""Extracted texts: each on the line of its source, in its area, and nothing that is code."""

from __future__ import annotations

import textwrap

import pytest

from trellis_tools.language.code_comments import code_comments
from trellis_tools.language.deploy_texts import comments, descriptions, labels, notes, targets, template_texts
from trellis_tools.language.page_texts import page_texts
from trellis_tools.language.python_texts import python_texts
from trellis_tools.language.texts import PLACEHOLDER, Text, document, is_prose

REST = "rest"


def python(source: str) -> list[tuple[str, int, str]]:
    return [(text.area, text.line, text.text) for text in python_texts(textwrap.dedent(source), REST)]


def lines(texts: list[Text] | tuple[Text, ...]) -> list[tuple[int, str]]:
    return [(text.line, text.text) for text in texts]


def test_a_document_has_each_text_on_its_line() -> None:
    texts = [Text("logs", 2, "node ready"), Text("logs", 3, "node gone"), Text("logs", 6, "pod evicted\nby hand")]
    assert document(texts).split("\n") == ["", "- node ready", "- node gone", "", "", "- pod evicted", "  by hand", ""]


def test_texts_on_one_line_are_separated() -> None:
    assert document([Text("logs", 1, "node ready"), Text("logs", 1, "node gone")]) == "- node ready / node gone\n"


def test_a_document_without_texts_is_empty() -> None:
    assert document([]) == ""


def test_a_document_has_no_html() -> None:
    assert document([Text("cli", 1, "a key <id> of it")]) == "- a key ‹id> of it\n"


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        pytest.param("no host answers", True, id="three words"),
        pytest.param("x: the host, which answers", True, id="three words with a comma"),
        pytest.param("host group", False, id="two words"),
        pytest.param("spec.replicas of hosts", False, id="two words and a field"),
        pytest.param("application/json; charset=utf-8", False, id="a header"),
        pytest.param("trellis.node.ready", False, id="a subject"),
    ],
)
def test_prose_is_three_words(text: str, prose: bool) -> None:
    assert is_prose(text) is prose


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        pytest.param("_log.info('node ready', node=name)", [("logs", 1, "node ready")], id="log"),
        pytest.param("self._log.warning(f'{node} is slow')", [("logs", 1, "… is slow")], id="log with a value"),
        pytest.param("math.log.info", [], id="no call"),
        pytest.param("f(message='node not ready')", [("conditions", 1, "node not ready")], id="message"),
        pytest.param(
            "Condition('Ready', 'False', reason, 'no Pod')", [("conditions", 1, "no Pod")], id="condition by position"
        ),
        pytest.param("raise KubeError(f'{kind} not found')", [("exceptions", 1, "… not found")], id="exception"),
        pytest.param("raise KeyError(name)", [], id="exception without a message"),
        pytest.param("raise KeyError('name')", [], id="exception with a key"),
        pytest.param(
            "self._gauge('queue_depth', 'Keys in progress', 'queue')",
            [("metrics", 1, "Keys in progress")],
            id="metric of a method",
        ),
        pytest.param(
            "Counter('x_total', documentation='All hosts')", [("metrics", 1, "All hosts")], id="metric by keyword"
        ),
        pytest.param(
            "a: Annotated[str, typer.Option('--all', help='for users')]", [("cli", 1, "for users")], id="help"
        ),
        pytest.param("return 'no node has it'", [(REST, 1, "no node has it")], id="other prose"),
        pytest.param("return 'application/json'", [], id="no prose"),
        pytest.param(
            "return f'{\"no node has\" if x else y}'", [(REST, 1, "no node has")], id="prose inside an f-string"
        ),
    ],
)
def test_a_string_has_the_area_of_its_call(source: str, wanted: list[tuple[str, int, str]]) -> None:
    assert python(source) == wanted


def test_a_string_of_several_parts_is_on_its_first_line() -> None:
    source = """
    x = 1
    raise ValueError(
        f"{name}: not "
        "numeric\\n"
    )
    """
    assert python(source) == [("exceptions", 4, "…: not numeric")]


def test_docstrings_keep_their_lines_and_lose_the_indentation_of_their_block() -> None:
    source = '''
    class Host:
        """One host.

        Its drawing:

            a -> b
        """

        name: str
        """As NATS has it."""
    '''
    assert python(source) == [
        ("docstrings", 3, "One host.\n\nIts drawing:\n\n    a -> b"),
        ("docstrings", 11, "As NATS has it."),
    ]


def test_descriptions_are_on_the_lines_where_they_begin() -> None:
    source = """
    properties:
      description:
        description: Long
          text.
        type: string
      other:
      - title: A panel
        summary: "{{ $labels.service }} is down"
      - alert: ServiceDown
    """
    assert lines(list(descriptions(textwrap.dedent(source), "crds"))) == [
        (4, "Long text."),
        (8, "A panel"),
        (9, "… is down"),
        (10, "ServiceDown"),
    ]


def test_a_drawing_has_its_labels() -> None:
    source = '<svg>\n  <rect x="1"/>\n  <text x="1" y="2">Service, &lt;name&gt;</text>\n</svg>'
    assert lines(list(labels(source, "docs"))) == [(3, "Service, <name>")]


def test_json_has_descriptions_too() -> None:
    assert lines(list(descriptions('{\n  "a": {"description": "One a."}\n}', "events"))) == [(2, "One a.")]


def test_adjacent_comments_are_one_text() -> None:
    source = """\
    # All
    # services.
    a: "x # y"  # of a
    # next
    b: don't # of b
    """
    assert lines(list(comments(textwrap.dedent(source), "chart"))) == [
        (1, "All\nservices."),
        (3, "of a"),
        (4, "next"),
        (5, "of b"),
    ]


def test_comments_of_rust_and_go_are_texts_and_directives_are_not() -> None:
    source = """\
    //! adapter
    //!
    //! module

    //go:wasmexport init
    /// Returns a value.
    pub fn f() {} // after code
    // "https://example.com" in a comment
    let url = "https://example.com";
    """
    assert lines(list(code_comments(textwrap.dedent(source), "sdk"))) == [
        (1, "adapter\n\nmodule"),
        (6, "Returns a value."),
        (7, "after code"),
        (8, '"https://example.com" in a comment'),
    ]


def test_a_template_has_comments_and_messages() -> None:
    source = """\
    {{/* Checks:
    values. */}}
    {{- if eq .a "x" }}
    {{- fail (printf "%s: needs a value" .b) -}}
    {{- end }}
    # For all pods.
    kind: {{ .kind }}
    """
    assert lines(list(template_texts(textwrap.dedent(source), "chart"))) == [
        (1, "Checks:\nvalues."),
        (4, f"{PLACEHOLDER}: needs a value"),
        (6, "For all pods."),
    ]


def test_notes_are_sentences_without_commands() -> None:
    source = "{{ if .x }}\nThe release {{ .name }}:\n  kubectl get pods\n{{ end }}\n"
    assert lines(list(notes(source, "chart"))) == [(2, "The release …:")]


def test_a_makefile_has_descriptions_of_targets() -> None:
    assert lines(list(targets("all: one ## Build all\n\tcc x\n", "cli"))) == [(1, "Build all")]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        pytest.param("<p>\n  One host.\n</p>", [(2, "One host.")], id="between tags"),
        pytest.param("<p>{figure(n)} of the hosts</p>", [(1, "of the hosts")], id="after a value"),
        pytest.param('<a class="soft big" title="hosts">', [(1, "hosts")], id="label, no class"),
        pytest.param("<p class={`soft is-${x} big`}>", [], id="class with a value"),
        pytest.param("const a = `${x} hosts of ${y}`;", [(1, "… hosts of …")], id="template"),
        pytest.param("const WORDS = { off: 'off', on: \"in use\" };", [(1, "off"), (1, "in use")], id="values"),
        pytest.param('import { a } from "./ui/a b";', [], id="import"),
        pytest.param("/* all of it */ // and of this\nf(x);", [], id="comments"),
        pytest.param("useState<string | null>(null);\nif (a > 0) {\n}", [], id="code"),
        pytest.param("}\nreturn <p>", [], id="code after a block"),
        pytest.param("<noscript>\nNeeds JavaScript.</noscript>", [(2, "Needs JavaScript.")], id="HTML"),
    ],
)
def test_a_page_has_texts_between_tags_and_in_strings(source: str, wanted: list[tuple[int, str]]) -> None:
    assert lines(page_texts(source, "console")) == wanted
