"""Inputs of the installer on a node and in its Job: containerd's configuration, specs, its own records, the CRI."""

from __future__ import annotations

import json
import random
import struct
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import tomlkit
from tomlkit.exceptions import ParseError, TOMLKitError

from fuzz.target import Target, tried
from node_installer.containerd import config, globs, toml_tables, toml_text
from node_installer.containerd.entries import Entry
from node_installer.domain.errors import InstallError
from node_installer.domain.refusal import Refusal, parse_refusal
from node_installer.domain.state import ConfigState, Journal, Phase, ShimState, State, parse_journal, parse_state
from node_installer.node import cri
from support.suite.mutations import dumped, mutated_often, spoilt, text
from trellis.installer_api.result import (
    TERMINATION_MESSAGE_BYTES,
    EndedProcess,
    FailureReason,
    InstallResult,
    Outcome,
    ShimResult,
    parse_result,
)
from trellis.installer_api.spec import InstallSpec, Source, SpecError, WantedShim, parse_spec

_KEYS = ("a", "b", "x-y", '"io.containerd.x"', '"a b"', "'q'", '"é"', "debug", "1")
_VALUES = (
    "1", "true", '"text"', "'lit'", '"""multi\n[plugins.cri.containerd.runtimes.spin]\nline"""', "[1, 2]", "1.5",
    "[\n  1,\n  # c\n  2\n]", "{ a = 1, b = { c = 2 } }", "1979-05-27T07:32:00Z", '""', "'''\n[x]\n'''", "0x1F", "inf",
    '"# no comment"',
)  # fmt: skip
_PLUGINS = (f'"{toml_tables.CRI_V3}"', f'"{toml_tables.CRI_V2}"', "cri", f"'{toml_tables.CRI_V2}'")
_HANDLERS = ("spin", "wasmtime", "slight", "lunatic-v2")


def _document(rng: random.Random) -> str:
    """A configuration as people, distributions and other installers write them."""
    lines = [rng.choice(["", "# a comment", "  "]) for _ in range(rng.randrange(2))]
    version = rng.choice([None, "1", "2", "2", "3", "3", "4"])
    lines += [f"version = {version}"] if version else []
    lines += [f"{key} = {rng.choice(_VALUES)}" for key in rng.sample(_KEYS, rng.randrange(3))]
    plugin = {"2": _PLUGINS[1], "3": _PLUGINS[0], "4": _PLUGINS[0]}.get(version or "", "cri")
    plugin = rng.choice([plugin, plugin, plugin, rng.choice(_PLUGINS)])
    for _ in range(rng.randrange(4)):
        lines += _section(rng, plugin)
    newline = "\r\n" if rng.random() < 0.1 else "\n"
    whole = newline.join("\n".join(lines).split("\n"))
    whole += newline if rng.random() < 0.8 else ""
    return ("\ufeff" if rng.random() < 0.03 else "") + whole


def _section(rng: random.Random, plugin: str) -> list[str]:
    runtimes = f"plugins.{plugin}.containerd.runtimes"
    handler = rng.choice(("runc", *_HANDLERS))
    return rng.choice(
        [
            [f"[plugins.{plugin}]", f"  sandbox_image = {rng.choice(_VALUES)}"],
            [f"[plugins.{plugin}.containerd]"],
            [f"  [ {runtimes} ]  # ours?"],
            [f"[{runtimes}.{handler}]", '  runtime_type = "io.containerd.runc.v2"', f"[{runtimes}.{handler}.options]"],
            [f"# RCM runtime config for {handler}", f"[{runtimes}.{handler}]", 'runtime_type = "/opt/rcm/bin/x"'],
            [f"[plugins.{plugin}.containerd]", f'runtimes = {{ {handler} = {{ runtime_type = "x" }} }}'],
            [f"[plugins.{plugin}]", f'containerd.runtimes.{handler}.runtime_type = "x"'],
            [f"plugins.{plugin} = {{ containerd = {{ runtimes = {{ }} }} }}"],
            [f"[{rng.choice(_KEYS)}]", f"{rng.choice(_KEYS)} = {rng.choice(_VALUES)}"],
            ["[[list]]", "a = 1", "[[list]]", "  # trailing"],
            ["", "# lone comment", ""],
            ["# >>> trellis-node-installer: managed entries, do not edit"],
            ["# <<< trellis-node-installer: spin"],
        ]
    )  # fmt: skip


_OPTIONS = ("true", "3", '"x"', "plain", "a = b", "[1, 2]", "x\ny", '"', "\\", "nan", "-inf", "1e400", "9" * 30, "{}",
            "9" * 5000, "[" * 3000, "1979-05-27", "0x10", "[[1]]", "1_0", "\ud800", "# c", "[1, # c", "\x85", "\x7f",
            "{a=1}", "1 # c", "''", '"\\u0000"', "[true, 'x']", "[1.5]", "[[], []]", "+1", "\t1", "é")  # fmt: skip


def _entries(rng: random.Random) -> list[Entry]:
    return [
        Entry(
            handler,
            rng.choice(["/opt/trellis/bin/x", "io.containerd.spin.v2", '/o"t', "/é"]),
            {name: text(rng, _OPTIONS) for name in rng.sample(["A", "SystemdCgroup", "x-y"], rng.choice([0, 0, 1, 2]))},
        )
        for handler in rng.sample(_HANDLERS, rng.randrange(1, 3))
    ]


def _loaded(raw: str) -> dict[str, Any] | None:
    """Return the meaning of a text if one reader accepts it; the other one has to agree where it can."""
    try:
        found = tomllib.loads(raw.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return found


def _merging(rng: random.Random) -> tuple[str, list[Entry], list[Entry]]:
    found = _document(rng)
    for _ in range(3):
        if _loaded(found) is not None or rng.random() < 0.15:
            break
        found = _document(rng)
    if rng.random() < 0.1:
        found = spoilt(rng, found.encode(errors="surrogatepass")).decode("utf-8", "surrogateescape")
    return found, _entries(rng), _entries(rng)


def _pruned(found: Any) -> Any:
    if not isinstance(found, dict):
        return found
    inner = {key: _pruned(item) for key, item in found.items()}
    return {key: item for key, item in inner.items() if item != {}}


def _judge_merging(case: tuple[str, list[Entry], list[Entry]]) -> str:
    before, entries, later = case
    meaning = _loaded(before)
    outcome, new = tried(lambda: config.merged(before, entries, path="f"), InstallError)
    if outcome != "accepted":
        assert new.reason is FailureReason.CONFIG_UNREADABLE
        return "no TOML" if meaning is None else "cannot be extended"
    assert meaning is not None
    after = _loaded(new)
    assert after is not None
    plugin = config.plugin_of(meaning)
    runtimes = after["plugins"][plugin]["containerd"]["runtimes"]
    theirs = toml_tables.at(meaning, toml_tables.way_to_runtimes(plugin)) or {}
    for entry in entries:
        assert same(runtimes.pop(entry.handler), entry.value())
    wanted = _pruned(meaning)
    for entry in entries:
        if entry.handler in theirs:
            del toml_tables.at(meaning, toml_tables.way_to_runtimes(plugin))[entry.handler]  # replaced in place
            wanted = _pruned(meaning)
    assert same(_pruned(after), wanted)
    assert config.merged(new, entries, path="f") == new
    _check_other_reader(before, new)
    _check_removal(before, new, later, theirs, entries)
    return "accepted"


def same(one: Any, other: Any) -> bool:
    """Equality that takes a NaN for itself, and tells types apart."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(item, other[key]) for key, item in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or repr(one) == repr(other))


def _check_other_reader(before: str, new: str) -> None:
    """Check that text which another library reads stays readable: no writer of ours produces a form of its own."""
    try:
        tomlkit.parse(before.removeprefix("\ufeff"))
    except (TOMLKitError, ValueError):
        return
    outcome, found = tried(lambda: tomlkit.parse(new.removeprefix("\ufeff")).unwrap(), ParseError)
    # It has faults of its own with tables out of order, which are good TOML.
    assert outcome != "accepted" or "plugins" in found


def _check_removal(before: str, new: str, later: list[Entry], theirs: Mapping[str, Any], entries: list[Entry]) -> None:
    if toml_text.section_of(before) is not None or any(entry.handler in theirs for entry in (*entries, *later)):
        return
    if toml_text.section_of(new) is None:
        return  # edited in place: what takes that away is told which handlers were ours
    bare = before if toml_text.without_stray_marks(before) == before else None
    changed = config.merged(new, later, path="f") if _loaded(new) is not None else new
    deleted = config.merged(changed, [], path="f")
    if bare is not None:
        assert deleted == bare
    else:
        assert same(_loaded(deleted), _loaded(before))


CONFIG = Target(
    "containerd-configs",
    "containerd's `config.toml`, with options of users",
    "as `tomllib` and `tomlkit` read it: the handler is added, the rest unchanged; idempotent; removal leaves no byte",
    _merging,
    _judge_merging,
    frozenset({"accepted", "no TOML"}),
    share=16,
)


def _template(rng: random.Random) -> tuple[str, list[Entry]]:
    lines = _document(rng).split("\n")
    for _ in range(rng.randrange(4)):
        lines.insert(
            rng.randrange(len(lines) + 1),
            rng.choice(['{{ template "base" . }}', "{{- if .X }}", "{{ end }}", "[{{ .Y }}]", "[[x]]", "{{/*", '"""']),
        )
    return "\n".join(lines), _entries(rng)


def _judge_template(case: tuple[str, list[Entry]]) -> str:
    before, entries = case
    if toml_text.section_of(before) is not None or toml_text.without_stray_marks(before) != before:
        return "has marks already"
    new = config.merged_template(before, entries, plugin=toml_tables.CRI_V3)
    assert new.startswith(before)
    assert config.merged_template(new, entries, plugin=toml_tables.CRI_V3) == new
    assert config.merged_template(new, [], plugin=toml_tables.CRI_V3) == before
    section = toml_text.section_of(new)
    assert section is not None
    runtimes = tomllib.loads(section)["plugins"][toml_tables.CRI_V3]["containerd"]["runtimes"]
    for entry in entries:
        assert same(runtimes[entry.handler], entry.value())
    config.runtimes_of_template(new)
    return "accepted"


TEMPLATE = Target(
    "containerd-templates",
    "Go templates of k3s and RKE2",
    "the section of Trellis is at the end and valid TOML by itself, and its removal leaves no byte",
    _template,
    _judge_template,
    share=6,
)

_SHA = "ab" * 32
_SPECS = (
    InstallSpec((WantedShim("spin", "spin", "d1", "shim/spin", (Source("https://x/y.tar.gz", "amd64", _SHA),)),)),
    InstallSpec(
        (
            WantedShim("a.b", "ab", "d2", "o", (Source("oci://r/x:1", member="bin/x", pull_secret="p"),), {"A": "1"}),
            WantedShim("c", "c", "d3", "o", (Source("/shims/c", None, binary_sha256=_SHA),)),
        ),
        require_checksum=False,
        allow_http=True,
        retry_refused=True,
    ),
)  # fmt: skip


def _spec(rng: random.Random) -> tuple[bool, bytes]:
    return rng.random() < 0.3, dumped(rng, mutated_often(rng, json.loads(rng.choice(_SPECS).to_json())))


def _judge_spec(case: tuple[bool, bytes]) -> str:
    removal, raw = case
    raw_text = raw.decode("utf-8", "surrogateescape")
    outcome, found = tried(lambda: parse_spec(raw_text, removal=removal), SpecError)
    if outcome != "accepted":
        assert isinstance(found, SpecError)
        return outcome
    found.to_json().encode()
    assert parse_spec(found.to_json(), removal=removal) == found
    for shim in found.shims:
        for value in (shim.name, shim.handler, shim.digest, shim.owner):
            assert value.isascii()
            assert value.isprintable()
            assert ".." not in value.split("/")
            assert len(value) <= 253
        assert shim.handler or removal
        assert all(option.encode() is not None for option in shim.runtime_options.values())
        assert all(source.location.isascii() and ".." not in source.location.split("/") for source in shim.sources)
    assert removal or len({shim.handler for shim in found.shims}) == len(found.shims)
    return outcome


SPEC = Target(
    "installer-specs",
    "the specification of an installer Job",
    "equal after a round trip; names fit into paths and labels; else one error",
    _spec,
    _judge_spec,
    frozenset({"accepted", "SpecError"}),
)


def _result(rng: random.Random) -> tuple[InstallResult | None, bytes]:
    found = InstallResult(
        operation=rng.choice(["install", "remove"]),
        outcome=rng.choice(list(Outcome)),
        reason=rng.choice([None, *FailureReason]),
        message=text(rng),
        preset=rng.choice(["k3s", "é" * 3000]),
        restarted=rng.random() < 0.5,
        seconds=rng.choice([0.0, 1.5]),
        shims=tuple(
            ShimResult(rng.choice(["spin", "a-b"]), "d", problem=text(rng) * rng.choice([1, 50]))
            for _ in range(rng.randrange(4))
        ),
        warnings=tuple(text(rng) for _ in range(rng.randrange(4))),
        ended=tuple(EndedProcess(number, text(rng)) for number in range(1, rng.choice([1, 2, 60]))),
    )  # fmt: skip
    if rng.random() < 0.4:
        return found, b""
    small = replace(found, preset="k3s", ended=found.ended[:1])
    return None, dumped(rng, mutated_often(rng, json.loads(small.to_line(100_000))))


def _judge_result(case: tuple[InstallResult | None, bytes]) -> str:
    made, raw = case
    line = raw.decode("utf-8", "replace") if made is None else made.to_line()
    found = parse_result(line)
    if made is not None:
        assert len(line.encode(errors="surrogatepass")) <= TERMINATION_MESSAGE_BYTES
        assert "\n" not in line
        assert found is not None
        assert (found.outcome, found.reason, found.operation) == (made.outcome, made.reason, made.operation)
        return "written"
    if found is None:
        return "none of ours"
    assert found.to_line()
    assert isinstance(found.ok, bool)
    hash((found.operation, found.message, found.preset, found.warnings, found.shims, found.ended))
    texts = (found.operation, found.message, found.preset, *found.warnings)
    assert all(isinstance(item, str) for item in texts), texts
    for shim in found.shims:
        values = (shim.handler, shim.digest, shim.sha256, shim.version, shim.problem)
        assert all(isinstance(value, str) for value in values), shim
        assert isinstance(shim.verified, bool)
    assert isinstance(found.seconds, int | float)
    assert isinstance(found.restarted, bool)
    assert all(isinstance(item.pid, int) and isinstance(item.name, str) for item in found.ended)
    return "accepted"


RESULT = Target(
    "termination-messages",
    "termination messages of installer pods, from any image",
    "a message of the installer fits and has outcome and reason; another message is ignored, or has all its types",
    _result,
    _judge_result,
    frozenset({"accepted", "none of ours", "written"}),
)

_STATE = State(
    {"spin": ShimState("spin", "/opt/x", _SHA, "d", ("shim/spin",), {"A": "1"}, "kwasm")},
    {"/etc/containerd/config.toml": ConfigState(b"version = 2\n", _SHA), "/x": ConfigState(None, _SHA)},
    ("/opt/trellis",),
    ("/opt/x-old",),
)
_JOURNAL = Journal("install", Phase.APPLYING, True, False, {"/a": "b"}, ("/opt",), "why")


def _book(rng: random.Random) -> tuple[str, bytes]:
    kind = rng.choice(["state", "journal", "refusal"])
    books: dict[str, Any] = {"state": _STATE, "journal": _JOURNAL, "refusal": Refusal("k", 1000.0, "m")}
    good = books[kind].to_bytes()
    return kind, good if rng.random() < 0.1 else dumped(rng, mutated_often(rng, json.loads(good)))


def _judge_book(case: tuple[str, bytes]) -> str:
    kind, raw = case
    if kind == "refusal":
        found = parse_refusal(raw, 1500.0)
        assert found is None or (0 <= 1500.0 - found.at < 3600 and parse_refusal(found.to_bytes(), 1500.0) == found)
        return "accepted" if found else "no refusal"
    parse = parse_state if kind == "state" else parse_journal
    outcome, book = tried(lambda: parse(raw, "f"), InstallError)
    if outcome != "accepted":
        assert book.reason is FailureReason.STATE_UNREADABLE
        return outcome
    assert parse(book.to_bytes(), "f") == book
    if isinstance(book, State):
        for handler, shim in book.shims.items():
            values = (handler, shim.name, shim.path, shim.sha256, shim.digest, shim.adopted, *shim.owners)
            assert all(isinstance(value, str) for value in values)
            assert all(isinstance(option, str) for option in shim.options.values())
        assert all(isinstance(directory, str) for directory in (*book.directories, *book.retired))
        assert all(isinstance(item.written_sha256, str) for item in book.configs.values())
    else:
        assert isinstance(book.restart, bool)
        assert all(isinstance(item, str) for item in (book.operation, book.cause, *book.directories))
        assert all(isinstance(backup, str) for backup in book.backups.values())
    return outcome


BOOK = Target(
    "installer-books",
    "state, journal and refusal of the installer on a node's disk",
    "equal after a round trip, with all its types; else one error, or no refusal",
    _book,
    _judge_book,
    frozenset({"accepted", "InstallError", "no refusal"}),
    share=8,
)

_PATTERN_PIECES = (
    "*",
    "?",
    "a",
    "b",
    ".toml",
    "[a-c]",
    "[^a]",
    "\\*",
    "[",
    "]",
    "-",
    "^",
    "[!a]",
    "é",
    "[]a]",
    "\\",
    "[a-]",
)


def _glob(rng: random.Random) -> tuple[str, str]:
    pattern = "".join(rng.choice(_PATTERN_PIECES) for _ in range(rng.randrange(8)))
    name = "".join(rng.choice(["a", "b", "c", ".toml", "*", "-", "^", "é", "!"]) for _ in range(rng.randrange(6)))
    if rng.random() < 0.05:
        pattern, name = "*a" * rng.randrange(20, 60), "a" * rng.choice([20, 255])
        name += rng.choice(["", "b"])
    return pattern, name


def _judge_glob(case: tuple[str, str]) -> str:
    pattern, name = case
    wanted = _go_match(pattern, name)
    assert globs.matches(pattern, name) is wanted
    return "matches" if wanted else "does not"


def _go_match(pattern: str, name: str) -> bool:
    """Go's ``path/filepath.Match``, read from its documentation and rewritten."""
    parts = _parts(pattern)
    if parts is None:
        return False

    @cache
    def rest(part: int, at: int) -> bool:
        if part == len(parts):
            return at == len(name)
        if parts[part] is None:
            return rest(part + 1, at) or (at < len(name) and name[at] != "/" and rest(part, at + 1))
        return at < len(name) and parts[part](name[at]) and rest(part + 1, at + 1)

    return rest(0, 0)


def _parts(pattern: str) -> list[Any] | None:
    found: list[Any] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            found.append(None)
        elif char == "?":
            found.append(lambda item: item != "/")
        elif char == "[":
            made, at = _class(pattern, at)
            if made is None:
                return None
            found.append(made)
        elif char == "\\":
            if at == len(pattern):
                return None
            found.append(pattern[at].__eq__)
            at += 1
        else:
            found.append(char.__eq__)
    return found


def _class(pattern: str, at: int) -> tuple[Any, int]:
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[tuple[str, str]] = []
    while not (pattern[at : at + 1] == "]" and ranges):
        low, at = _character(pattern, at)
        high = low
        if low is not None and pattern[at : at + 1] == "-":
            high, at = _character(pattern, at + 1)
        if low is None or high is None:
            return None, at
        ranges.append((low, high))
    return (lambda item: any(low <= item <= high for low, high in ranges) is not negated), at + 1


def _character(pattern: str, at: int) -> tuple[str | None, int]:
    """A class's character, which ``-`` and ``]`` are only behind a backslash, and which something has to follow."""
    char = pattern[at : at + 1]
    if char in ("", "-", "]"):
        return None, at
    if char == "\\":
        at += 1
        char = pattern[at : at + 1]
    at += 1
    return (char, at) if char and at < len(pattern) else (None, at)


GLOB = Target(
    "import-patterns",
    "patterns of containerd's `imports`",
    "equal to Go's `filepath.Match`, by a second implementation without regular expressions; bounded time",
    _glob,
    _judge_glob,
    frozenset({"matches", "does not"}),
    share=6,
)


def _wire(number: int, content: bytes) -> bytes:
    length = len(content)
    varint = bytes([length]) if length < 128 else bytes([length & 0x7F | 0x80, length >> 7])
    return bytes([number << 3 | 2]) + varint + content


def _status(rng: random.Random) -> bytes:
    table = {"runtimeType": "io.containerd.runc.v2", "runtimePath": "/opt/x"}
    held = dumped(rng, mutated_often(rng, {"containerd": {"runtimes": {"spin": table}}}))[:16_000]
    found = _wire(1, b"x") + _wire(2, _wire(1, b"config") + _wire(2, held)) + b"\x18\x05"
    return found if rng.random() < 0.4 else spoilt(rng, found, [b"\xff" * 12, b"\x80", b"\x12\xff\xff\x7f"])


def _judge_status(raw: bytes) -> str:
    outcome, config = tried(lambda: cri._config(raw), ValueError, IndexError, struct.error)
    if outcome != "accepted":
        return "nothing"
    found = cri._runtimes(config)
    assert cri._systemd_cgroup(config) in {True, False}
    if found is not None:
        assert all(isinstance(item, str) for pair in found.items() for item in pair)
        return outcome
    return "nothing"


CRI = Target(
    "cri-replies",
    "responses of the runtime over CRI: protobuf with JSON",
    "handlers and paths as text, or nothing",
    _status,
    _judge_status,
    frozenset({"accepted", "nothing"}),
    share=4,
)

TARGETS = (CONFIG, TEMPLATE, SPEC, RESULT, BOOK, GLOB, CRI)
