"""The sheets of `trellis top`, its keys, and the escaping of text from the cluster."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from support.console import seen_objects as objects
from support.v2.recordings import recording
from support.wasm_pods.entities import seen_wasm
from trellis.lattice.domain.service_views import view_pod
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.read_model.entities.cards import (
    view_app_card,
    view_controller_card,
    view_ends,
    view_group_card,
    view_service_card,
    view_shim_card,
)
from trellis.read_model.entities.composing import PARTS, Composer
from trellis.read_model.entities.composing_v2 import HEARTBEATS, INSTALLED, V2Composer
from trellis.read_model.entities.composing_v2 import PARTS as V2_PARTS
from trellis.read_model.entities.composing_wasm import PARTS as WASM_PARTS
from trellis.read_model.entities.composing_wasm import PODS as WASM_PODS
from trellis.read_model.entities.entities import PartStatus, part_entity
from trellis.read_model.entities.v2_entities import SERVICE as V2_SERVICE
from trellis.v2.deployments import view_deployment, view_replica_set
from trellis.v2.hosts import view_host
from trellis.v2.workloads import view_workload
from trellis_cli.top.keys import PAGE, Screen, keys, press
from trellis_cli.top.model import (
    SHEETS,
    Kind,
    Wanted,
    awaited,
    chosen,
    counts,
    difference,
    lacking,
    notes,
    rows,
    sheets,
    size,
    sorts,
    unread,
)
from trellis_cli.top.views import screen_of, sheet_of

REFUSED = ("not allowed to list nodes in the whole cluster", "ask for the right")


def filled(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest | {"metadata": {"uid": "u", "resourceVersion": "1"} | manifest["metadata"]}


def world(**refused: tuple[str, str]) -> dict[str, Any]:
    """Return entities of every kind, some nodes more, and how each part is read."""
    composer, unselected = Composer(), objects.node("n2")
    unselected["metadata"]["labels"] = {}
    for part, key, view in (
        ("nodes", "n1", view_node(filled(objects.opted_in()))),
        ("nodes", "n2", view_node(filled(unselected))),
        ("nodes", "n3", view_node(filled(objects.node("n3", **{"kwasm.sh/kwasm-node": "[bold]\x1b[2J"})))),
        ("shims", "spin", view_shim_card(filled(objects.shim()))),
        ("groups", "team/hosts", view_group_card(filled(objects.group(pods=("hosts-1",))))),
        ("pods", "team/hosts-1", view_pod(filled(objects.host_pod()))),
        ("applications", "team/shop", view_app_card(filled(objects.application()))),
        ("applications", "team/web", view_app_card(filled(objects.application("web", phase="Failed")))),
        ("services", "team/shop", view_service_card(filled(objects.service()))),
        ("slices", "team/shop-0", view_ends(filled(objects.slice_of()))),
        ("controllers", "team/ring", view_controller_card(filled(objects.controller()))),
    ):
        composer.take(part, key, view)
    for part in PARTS:
        composer.report(PartStatus(part, synced=True, lacking={"": refused[part]} if part in refused else {}))
    wasm = {id_: item for id_, item in seen_wasm().items() if item["kind"] not in {"node", "shim"}}
    found = composer.flush() | v2_composer().flush(V2_TIME, None) | wasm
    return {id_: entity for id_, entity in found.items() if entity is not None}


V2_TIME = recording("03").start + 2.2


def v2_composer() -> V2Composer:
    composer = V2Composer()
    for item in recording("03").objects(2.2):
        for kind, part, view in (
            ("Host", "whosts", view_host),
            ("Workload", "workloads", view_workload),
            ("WorkloadReplicaSet", "workloadreplicasets", view_replica_set),
            ("WorkloadDeployment", "workloaddeployments", view_deployment),
        ):
            if item["kind"] == kind:
                composer.take(part, f"{item['metadata']['namespace']}/{item['metadata']['name']}", view(item))
    composer.report([PartStatus(part, synced=True, lacking={}) for part in (INSTALLED, *V2_PARTS)])
    return composer


def without_v2(entities: dict[str, Any]) -> dict[str, Any]:
    """Return the entities of a cluster without wasmCloud v2."""
    composer = V2Composer()
    composer.report([PartStatus(INSTALLED, synced=True, lacking={}, absent=True)])
    kept = {id_: item for id_, item in entities.items() if id_ not in v2_composer().flush(V2_TIME, None)}
    return kept | {id_: item for id_, item in composer.flush(V2_TIME, None).items() if item is not None}


def ids(kind: Kind, entities: dict[str, Any], **wanted: Any) -> list[str]:
    return [row.id for row in rows(kind, entities, Wanted(**wanted))]


def drawn(screen: Screen, entities: dict[str, Any], height: int = 30, trouble: str = "") -> list[str]:
    out = io.StringIO()
    Console(file=out, width=160).print(screen_of(screen, entities, height, trouble=trouble))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("height", [1, 2, 5, 6, 9, 24])
@pytest.mark.parametrize("typing", [False, True])
@pytest.mark.parametrize("places", [1, 40])
def test_a_screen_is_never_longer_than_the_terminal_and_has_the_line_that_keys_move(
    height: int, places: int, *, typing: bool
) -> None:
    entities = world()
    refused = {f"ns-{number}": REFUSED for number in range(places)}
    entities["part/pods"] = part_entity(PartStatus("pods", synced=True, lacking=refused))
    entities |= {f"host/team/h{at}": entities["host/team/hosts-1"] | {"name": f"h{at}"} for at in range(50)}
    lines = drawn(Screen(Kind.HOSTS, selected="host/team/h30", typing=typing), entities, height, trouble="away")
    assert len(lines) <= max(height, 3)
    assert any("h30 " in line for line in lines)
    assert lines[-1].startswith("filter" if typing else "1-9")


# --- the model ---


@pytest.mark.parametrize("kind", list(Kind))
def test_every_sheet_has_its_entities_and_can_be_sorted_by_each_column(kind: Kind) -> None:
    entities = world()
    own = {id_ for id_, item in entities.items() if SHEETS[kind].has(item)}
    assert own
    for column in sorts(kind):
        for reverse in (False, True):
            found = rows(kind, entities, Wanted(sort=column, reverse=reverse))
            assert {row.id for row in found} == own
            assert all(len(row.cells) == len(SHEETS[kind].columns) for row in found)


def test_every_entity_of_the_console_is_in_a_sheet_and_every_part_in_one() -> None:
    shown_with_their_deployment = {"workload"}
    kinds = {kind for sheet in SHEETS.values() for kind in sheet.kinds or (sheet.of,)} | {"part"}
    kinds -= {V2_SERVICE}  # of another state
    assert {item["kind"] for item in world().values()} == kinds | shown_with_their_deployment
    parts = {part for sheet in SHEETS.values() for part in sheet.parts}
    assert parts == {*PARTS, *V2_PARTS, *WASM_PARTS, INSTALLED, HEARTBEATS}


def test_the_worst_rows_come_first_and_rows_without_a_value_last() -> None:
    entities = world()
    assert ids(Kind.NODES, entities) == ["node/n3", "node/n1", "node/n2"]
    assert ids(Kind.NODES, entities, reverse=True) == ["node/n2", "node/n1", "node/n3"]
    assert ids(Kind.NODES, entities, sort="name") == ["node/n1", "node/n2", "node/n3"]
    assert ids(Kind.APPLICATIONS, entities)[0] == "application/team/web"
    twice = {
        f"controller/team/{name}": entities["controller/team/ring"] | {"name": name, "calls": calls}
        for name, calls in (("a", None), ("b", 9), ("c", 10))
    }
    for reverse, order in ((False, ["c", "b", "a"]), (True, ["b", "c", "a"])):
        found = ids(Kind.CONTROLLERS, twice, sort="calls", reverse=reverse)
        assert [id_.rpartition("/")[2] for id_ in found] == order


def test_a_filter_is_words_that_are_all_in_a_line_or_in_why() -> None:
    entities = world()
    assert ids(Kind.NODES, entities, terms="N1") == ["node/n1"]
    assert ids(Kind.NODES, entities, terms="n Degraded") == ["node/n3"]
    assert ids(Kind.NODES, entities, terms="n1 Degraded") == []
    assert entities["node/n3"]["message"]
    assert ids(Kind.NODES, entities, terms=entities["node/n3"]["message"].split()[0]) == ["node/n3"]


def test_a_forbidden_list_is_a_note_and_not_empty() -> None:
    entities = world(nodes=REFUSED)
    assert notes(Kind.NODES, entities) == [": ".join(REFUSED)]
    assert notes(Kind.APPLICATIONS, entities) == []
    assert lacking([Kind.NODES], entities) == [
        {"part": "nodes", "namespace": None, "message": REFUSED[0], "do": REFUSED[1]}
    ]
    assert lacking(Kind, entities) == lacking([Kind.NODES], entities), "each part once"
    entities["part/controllers"] = entities["part/controllers"] | {"defined": False}
    [note] = notes(Kind.CONTROLLERS, entities)
    assert note.endswith(": `trellis crds apply`")


def test_unread_lists_are_known() -> None:
    entities = world()
    assert unread(entities) == []
    entities["part/pods"] = entities["part/pods"] | {"synced": False}
    del entities["part/jobs"]
    assert unread(entities) == ["jobs", "pods"]


def test_a_cluster_without_wasmcloud_v2_has_no_sheet_for_it_and_waits_for_nothing_of_it() -> None:
    entities = without_v2(world())
    assert {Kind.V2_HOST_GROUPS, Kind.V2_HOSTS, Kind.V2_DEPLOYMENTS} == {*Kind} - {*sheets(entities)}
    assert unread(entities) == []
    assert lacking(Kind, entities) == []
    assert "wasmCloud v2" in notes(Kind.V2_HOSTS, entities)[0]
    assert "whosts" not in "".join(drawn(Screen(), entities))
    assert unread({}) == sorted({*PARTS, INSTALLED, WASM_PODS}), "it is not known yet"


def test_unreadable_wasmcloud_v2_has_a_sheet_with_the_reason() -> None:
    entities = without_v2(world())
    entities[f"part/{INSTALLED}"] = part_entity(PartStatus(INSTALLED, synced=True, lacking={"": REFUSED}))
    assert {*sheets(entities)} == {*Kind}
    assert unread(entities) == []
    assert notes(Kind.V2_HOSTS, entities) == [": ".join(REFUSED)]


def test_wasm_pods_are_read_completely_while_a_shim_exists() -> None:
    entities = world()
    entities["part/cronjobs"] = entities["part/cronjobs"] | {"synced": False}
    assert unread(entities) == ["cronjobs"]
    for part in {*WASM_PARTS} - {WASM_PODS}:
        del entities[f"part/{part}"]
    assert unread(entities) == [], "without a Shim only the part of the pods exists"
    del entities[f"part/{WASM_PODS}"]
    assert unread(entities) == [WASM_PODS]


def test_wasm_pods_have_a_line_for_each_owner_with_the_kind_that_explains_it() -> None:
    found = {row.id: row for row in rows(Kind.WASM_PODS, world(), Wanted())}
    assert {row.explained for row in found.values()} == {*found}
    assert found["deployment/shop/hello"].cells[1:] == (
        "hello",
        "deployment",
        "Progressing",
        "spin",
        "2",
        "1",
        "1",
        "1",
    )


def test_sheets_stay_while_objects_are_evaluated() -> None:
    entities = world()
    entities[f"part/{INSTALLED}"] = entities[f"part/{INSTALLED}"] | {"synced": False}
    assert {*sheets(entities)} == {*Kind}
    assert unread(entities) == [INSTALLED]


def test_numbers_of_a_host_without_a_heartbeat_are_unknown_and_not_zero() -> None:
    [row] = [row for row in rows(Kind.V2_HOSTS, world(), Wanted()) if row.id.endswith("uppity-son-5573")]
    cells = dict(zip(sorts(Kind.V2_HOSTS), row.cells, strict=True))
    assert {cells[name] for name in ("cpu", "free", "memory", "components", "workloads")} == {"-"}
    assert cells["placed"] != "-"
    assert awaited(world())
    sent = {id_: item | {"heartbeat": True} if item["kind"] == "whost" else item for id_, item in world().items()}
    assert not awaited(sent)


def test_a_host_group_of_wasmcloud_v2_has_its_pods_and_hosts_and_unknown_pods_are_no_number() -> None:
    [row] = rows(Kind.V2_HOST_GROUPS, world(), Wanted())
    cells = dict(zip(sorts(Kind.V2_HOST_GROUPS), row.cells, strict=True))
    assert (cells["name"], cells["hosts"], cells["pods"], cells["ready"]) == ("default", "2", "0", "0")
    assert row.explained == "whostgroup/wasmcloud-system/default"
    unknown = {id_: item | {"pods": None} if id_ == row.id else item for id_, item in world().items()}
    [row] = rows(Kind.V2_HOST_GROUPS, unknown, Wanted())
    assert row.cells[-2:] == ("-", "-")


def test_counts_are_of_all_and_not_of_what_fits() -> None:
    assert next(iter(counts(Kind.NODES, world()).items())) == ("Degraded", 1)
    assert sum(counts(Kind.NODES, world()).values()) == 3


@given(*[st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2).map(lambda n: {"n": n}))] * 2)
def test_a_difference_leads_from_one_state_to_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    changed, deleted = difference(before, after)
    state = {id_: item for id_, item in (before | changed).items() if id_ not in deleted}
    assert state == after
    assert not set(changed) & set(deleted)


def test_output_for_programs_contains_only_the_requested_sheets() -> None:
    found = chosen([Kind.SHIMS, Kind.HOST_GROUPS], world(), Wanted())
    assert list(found) == ["shim/spin", "hostgroup/team/hosts"]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0, "0 B"), (1023, "1023 B"), (4096, "4.0 KiB"), (3 * 1024**4, "3072.0 GiB")]
)
def test_sizes_have_units(value: int | None, text: str) -> None:
    assert size(value) == text


# --- keys ---


def test_key_sequences_of_a_terminal_have_names() -> None:
    sent = "q\x1b[A\x1bOB\x1b[5~\t\x1b\x1b[200~ö\x7f\r"
    assert keys(sent) == ["q", "up", "down", "page up", "right", "escape", "ö", "backspace", "enter"]


def pressed(screen: Screen, *names: str, lines: tuple[str, ...] = ()) -> Screen:
    for name in names:
        after = press(screen, name, lines)
        assert after is not None
        screen = after
    return screen


def test_keys_choose_a_sheet_and_forget_what_was_selected_in_another() -> None:
    screen = pressed(Screen(selected="node/n1"), "right")
    assert (screen.kind, screen.selected) == (Kind.SHIMS, "")
    assert pressed(Screen(), "left").kind is Kind.V2_DEPLOYMENTS
    assert pressed(Screen(), "3").kind is Kind.HOST_GROUPS
    assert pressed(Screen(), "x").kind is Kind.NODES
    assert pressed(Screen(), "0").kind is Kind.V2_HOSTS, "the tenth"
    assert pressed(Screen(Kind.V2_HOSTS), "right").kind is Kind.V2_DEPLOYMENTS, "the eleventh has no digit"
    assert press(Screen(), "q", ()) is None


def test_keys_choose_no_sheet_that_the_cluster_does_not_have() -> None:
    kinds = sheets(without_v2(world()))
    for key, screen, kind in (
        ("left", Screen(), Kind.WASM_PODS),
        ("right", Screen(Kind.WASM_PODS), Kind.NODES),
        ("9", Screen(), Kind.NODES),
        ("right", Screen(Kind.V2_HOSTS), Kind.NODES),
        ("left", Screen(Kind.V2_HOSTS), Kind.WASM_PODS),
    ):
        after = press(screen, key, (), kinds)
        assert after is not None
        assert after.kind is kind, key


def test_a_sort_that_the_next_sheet_lacks_becomes_the_health() -> None:
    screen = pressed(Screen(Kind.CONTROLLERS), *["s"] * 3)
    assert screen.wanted.sort == sorts(Kind.CONTROLLERS)[(sorts(Kind.CONTROLLERS).index("health") + 3) % 9]
    assert pressed(replace(screen, wanted=Wanted(sort="traps")), "1").wanted.sort == "health"
    assert pressed(replace(screen, wanted=Wanted(sort="name")), "1").wanted.sort == "name"
    assert pressed(Screen(), "r").wanted.reverse


def test_a_selection_moves_stays_inside_and_follows_its_line() -> None:
    lines = tuple("abcdefghijklmnopqrst")
    assert pressed(Screen(), "down", lines=lines).selected == "b"
    assert pressed(Screen(), "up", lines=lines).selected == "a"
    assert pressed(Screen(), "page down", "down", lines=lines).selected == lines[PAGE + 1]
    assert pressed(Screen(), "end", "down", lines=lines).selected == "t"
    assert pressed(Screen(selected="t"), "home", lines=lines).selected == "a"
    assert pressed(Screen(selected="c"), "down", lines=("c", "a", "b")).selected == "a"
    assert pressed(Screen(selected="gone"), "down", lines=lines).selected == "b"
    assert pressed(Screen(selected="gone"), "down").selected == ""


def test_dead_letters_match_the_filter_while_it_is_typed() -> None:
    screen = pressed(Screen(), "/", "q", "1", "x", "backspace", "up")
    assert (screen.typing, screen.wanted.terms, screen.kind) == (True, "q1", Kind.NODES)
    kept = pressed(screen, "enter")
    assert (kept.typing, kept.wanted.terms) == (False, "q1")
    assert pressed(kept, "escape").wanted.terms == ""
    dropped = pressed(screen, "escape")
    assert (dropped.typing, dropped.wanted.terms) == (False, "")


@given(st.text(max_size=40))
def test_no_text_from_a_terminal_breaks_it(text: str) -> None:
    screen: Screen | None = Screen()
    for key in keys(text):
        screen = press(screen, key, ("a", "b")) if screen else None
    assert screen is None or screen.kind in Kind


# --- the screen ---


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("height", [12, 24, 60])
def test_a_screen_fills_the_terminal_and_no_more(kind: Kind, height: int) -> None:
    many = {f"node/m{number}": world()["node/n1"] | {"name": f"m{number}"} for number in range(100)}
    assert len(drawn(Screen(kind), world() | many, height)) == height


def test_the_selected_line_is_on_the_screen_with_its_reason_and_the_command_for_details() -> None:
    node = world()["node/n1"]
    many = {
        f"node/m{number:04}": node | {"name": f"m{number:04}", "reason": "Waiting", "message": f"reason {number}"}
        for number in range(1000)
    }
    seen = drawn(Screen(selected="node/m0700", wanted=Wanted(sort="name")), world() | many)
    assert any(line.startswith("m0700 ") for line in seen)
    assert "node/m0700: Waiting: reason 700" in seen[-3]
    assert "trellis explain node/m0700" in seen[-2]
    of_host = drawn(Screen(Kind.HOSTS), world())
    assert "trellis explain hostgroup/hosts --namespace team" in of_host[-2]


def test_notes_and_trouble_stand_above_the_rows() -> None:
    trouble = "what is shown may be old: no route"
    seen = drawn(Screen(), world(nodes=REFUSED), trouble=trouble)
    assert seen[2:4] == [f"! {trouble}", f"! {': '.join(REFUSED)}"]
    assert len(seen) == 30


def test_text_from_the_cluster_is_no_markup_and_steers_no_terminal() -> None:
    entities = world()
    hostile = "[bold]red[/bold] \x1b[2J\x07 end"
    entities["node/n1"] = entities["node/n1"] | {"message": hostile, "health": "Degraded"}
    for seen in (drawn(Screen(selected="node/n1"), entities), sheet_lines(entities)):
        text = "\n".join(seen)
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "[bold]red[/bold] \\x1b[2J\\x07 end" in text


def sheet_lines(entities: dict[str, Any]) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=200).print(sheet_of(Kind.NODES, entities, Wanted()))
    return out.getvalue().splitlines()
