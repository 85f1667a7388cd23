"""Edits of users in and around the section of Trellis, and rare forms of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_installer.containerd import config, toml_tables
from node_installer.containerd.entries import Entry
from trellis.installer_api.result import FailureReason, Outcome
from unit.node_installer.world import World, a_wanted_shim, a_world

SPIN = [Entry("spin", "/opt/trellis/bin/containerd-shim-spin")]
RUNC = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\nruntime_type = "x"\n'
INLINE = (
    'version = 2\nplugins = { "io.containerd.grpc.v1.cri" = { containerd = { runtimes = { } } } } # keep\n'
    "oom_score = 0\n"
)
MAIN = "etc/containerd/config.toml"


def without_spin(text: str) -> str:
    return config.merged(text, [], path="f", adopted=["spin"])


def test_comments_of_others_inside_the_section_of_trellis_stay() -> None:
    text = config.merged(RUNC, SPIN, path="f")
    begin, header, kind, end = text.removeprefix(RUNC).splitlines(keepends=True)
    edited = RUNC + begin + "# one\n" + header + "# two\n" + kind + "# three\n" + end
    assert without_spin(edited) == RUNC + "# one\n# two\n# three\n"
    assert "# two\n" in config.merged(edited, SPIN, path="f")


@pytest.mark.parametrize("mark", ["# >>>", "# <<<"])
def test_a_mark_that_lost_its_counterpart_goes_too(mark: str) -> None:
    text = config.merged(RUNC, SPIN, path="f")
    edited = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(mark))
    assert without_spin(edited) == RUNC
    assert config.merged(edited, SPIN, path="f", adopted=["spin"]) == text


def test_a_mark_in_a_string_is_none() -> None:
    text = 'version = 2\nx = """\n# <<< trellis-node-installer\n"""\n'
    assert config.merged(text, [], path="f") == text


def test_a_section_that_a_tool_has_doubled_goes_wholly() -> None:
    text = config.merged(RUNC, SPIN, path="f")
    other = text.removeprefix(RUNC).replace("runtimes.spin", "runtimes.wws").replace(": spin", ": wws")
    assert without_spin(text + other) == RUNC


@pytest.mark.parametrize("original", [INLINE, INLINE.replace("containerd = { runtimes = { } }", "")])
def test_an_inline_table_that_was_empty_before_stays(original: str, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    main = world.root / MAIN
    main.write_text(original)
    world.runtime.load()
    wanted = a_wanted_shim(world.image)
    assert world.install(wanted).outcome is Outcome.INSTALLED
    first = main.read_text()
    assert "# keep" in first
    assert world.install(wanted).outcome is Outcome.UNCHANGED
    assert world.install(wanted, a_wanted_shim(world.image, handler="wws")).outcome is Outcome.INSTALLED
    assert "# keep" in main.read_text()
    main.write_text(main.read_text().replace("oom_score = 0", "oom_score = -1"))
    assert world.uninstall().ok
    assert main.read_text() == original.replace("oom_score = 0", "oom_score = -1")


def test_a_header_of_the_user_with_nothing_in_it_stays() -> None:
    text = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes]\n# none yet\n'
    with_spin = text + '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.spin]\nruntime_type = "/opt/x"\n'
    assert without_spin(with_spin) == text


def marked(world: World) -> bytes:
    main = world.root / MAIN
    main.write_bytes(b"\xef\xbb\xbf" + main.read_bytes())
    return main.read_bytes()


def test_a_byte_order_mark_is_containerd_1s_and_stays(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    before = marked(world)
    world.runtime.load = lambda: setattr(  # type: ignore[method-assign]
        world.runtime, "loaded", config.parse(world.read(f"/{MAIN}"), "")
    )
    world.runtime.load()
    assert world.install(a_wanted_shim(world.image)).outcome is Outcome.INSTALLED
    assert (world.root / MAIN).read_bytes().startswith(before)
    assert world.uninstall().ok
    assert (world.root / MAIN).read_bytes() == before


@pytest.mark.parametrize("answers", [True, False])
def test_a_byte_order_mark_would_keep_containerd_2_from_starting_again(answers: bool, tmp_path: Path) -> None:
    world = a_world(tmp_path, "containerd-v3")
    before = marked(world)
    world.runtime.up = answers
    result = world.install(a_wanted_shim(world.image))
    assert result.reason is FailureReason.CONFIG_UNREADABLE
    assert MAIN in result.message
    assert world.runtime.restarts == 0
    assert (world.root / MAIN).read_bytes() == before


BASE = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}]\nruntime_type = "{kind}"\n'


@pytest.mark.parametrize(
    "template",
    [
        '{{- template "base" . -}}\n',
        '{{template "base" .}}',
        '  {{ template "base" . }}\r\n\r\n'
        + BASE.format(name="crun", kind="io.containerd.runc.v2").replace("\n", "\r\n"),
        '{{ template "base" . }}\n{{ if .X }}\n' + BASE.format(name="crun", kind="io.x") + "{{ end }}\n",
    ],
    ids=["trimmed", "tight", "indented", "condition"],
)
def test_a_template_however_it_is_spaced_is_extended_and_comes_back(template: str, tmp_path: Path) -> None:
    world = a_world(tmp_path, "k3s-v2")
    file = world.root / "var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl"
    file.write_bytes(template.encode())
    wanted = a_wanted_shim(world.image)
    # What k3s renders of a condition or a trimmed line only a Go program knows: the node's runtime has it or not.
    world.runtime.effective = lambda: rendered(file)  # type: ignore[method-assign]
    world.runtime.load()
    result = world.install(wanted)
    assert result.outcome is Outcome.INSTALLED, result.message
    assert config.runtimes_of_template(file.read_text())["spin"] == "/opt/trellis/bin/containerd-shim-spin"
    assert file.read_bytes().startswith(template.encode())
    assert world.install(wanted).outcome is Outcome.UNCHANGED
    assert world.uninstall().ok
    assert file.read_bytes() == template.encode()


def rendered(file: Path) -> dict[str, object]:
    runtimes = config.runtimes_of_template(file.read_bytes().decode())
    tables = {name: {"runtime_type": kind} for name, kind in {"runc": "io.containerd.runc.v2", **runtimes}.items()}
    return {"plugins": {toml_tables.CRI_V2: {"containerd": {"runtimes": tables}}}}


def test_kwasms_entry_under_a_condition_is_taken_over(tmp_path: Path) -> None:
    world = a_world(tmp_path, "k3s-v2")
    file = world.root / "var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl"
    theirs = BASE.format(name="spin", kind="/opt/kwasm/bin/containerd-shim-spin-v2")
    file.write_text('{{ template "base" . }}\n{{ if .X }}\n' + theirs + "{{ end }}\n")
    world.runtime.effective = lambda: rendered(file)  # type: ignore[method-assign]
    world.runtime.load()
    assert world.install(a_wanted_shim(world.image)).ok
    assert "kwasm" not in file.read_text()
    assert world.runtime.runtimes()["spin"] == "/opt/trellis/bin/containerd-shim-spin"
