"""The model of `trellis top`: sheets of entities, sorted and filtered.

Pure. In: entities as in the console (docs/console/api.md). Out: rows, counts, notes on missing permissions. Called by
``top`` and ``top.views``. Invariant: an unreadable sheet has a note and is not shown as empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from trellis.read_model.entities.composing_v2 import HEARTBEATS, INSTALLED
from trellis.read_model.entities.composing_v2 import PARTS as V2_PARTS
from trellis.read_model.entities.composing_wasm import PARTS as WASM_PARTS
from trellis.read_model.entities.composing_wasm import PODS
from trellis.read_model.entities.journal import Entity
from trellis.read_model.entities.v2_entities import SERVICE as V2_SERVICE
from trellis.read_model.entities.wasm_entities import KINDS as WASM_KINDS
from trellis.read_model.health import Health
from trellis.v2.objects import GROUP

Entities = Mapping[str, Entity]
_NONE: Final = "-"
_KIB: Final = 1024.0
_WORST_FIRST: Final = (
    *(Health.DEGRADED, Health.MISSING, Health.UNKNOWN, Health.PROGRESSING, Health.SUSPENDED),
    *(Health.HEALTHY, Health.NOT_OPTED_IN),
)
_RANK: Final = {health.value: rank for rank, health in enumerate(_WORST_FIRST)}
_PART: Final = "part"
V2_HOSTS_PART: Final = "whosts"
V2_PODS_PART: Final = "wpods"


class Kind(StrEnum):
    """A sheet."""

    NODES = "nodes"
    SHIMS = "shims"
    HOST_GROUPS = "hostgroups"
    HOSTS = "hosts"
    APPLICATIONS = "applications"
    SERVICES = "services"
    CONTROLLERS = "controllers"
    WASM_PODS = "wasmpods"
    V2_HOST_GROUPS = "whostgroups"
    V2_HOSTS = "whosts"
    V2_DEPLOYMENTS = "workloaddeployments"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``cell``: its value in an entity; ``render``: its text."""

    heading: str
    cell: Callable[[Entity], Any]
    render: Callable[[Any], str] = lambda value: _NONE if value is None or value == "" else str(value)
    number: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """``of``: its name as a kind, and that of its entities; ``parts``: the parts of the state that it needs.

    ``v2``: it exists only in a cluster with wasmCloud v2; ``parts_v2``: further parts in such a cluster. ``kinds``:
    those of its entities, if they are several.
    """

    of: str
    columns: tuple[Column, ...]
    parts: tuple[str, ...]
    v2: bool = False
    parts_v2: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def has(self, entity: Entity) -> bool:
        """Return whether an entity is a line of the sheet."""
        return entity["kind"] in (self.kinds or (self.of,))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Sort column of a sheet, reverse order, and the words that all have to be in a row."""

    sort: str = "health"
    reverse: bool = False
    terms: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a sheet. ``explained``: the id for `trellis explain`: for a host its host group."""

    id: str
    state: str
    reason: str
    cells: tuple[str, ...]
    explained: str


def _field(heading: str, name: str | None = None) -> Column:
    key = name or heading.lower()
    return Column(heading, lambda entity: entity[key])


def _number(heading: str, cell: Callable[[Entity], Any], render: Callable[[Any], str] | None = None) -> Column:
    return Column(heading, cell, render or (lambda value: _NONE if value is None else str(value)), number=True)


def size(value: float | None) -> str:
    """Return a size as text: ``3.4 MiB``."""
    if value is None:
        return _NONE
    amount = float(value)
    for unit in ("B", "KiB", "MiB"):
        if amount < _KIB:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIB
    return f"{amount:.1f} GiB"


def _of_all(entity: Entity) -> str:
    ports = ", ".join(str(port["port"]) for port in entity["ports"])
    return f"{', '.join(entity['addresses'])}:{ports}" if entity["addresses"] else ports


def _application(service: Entity) -> str:
    """Return the application of a Service; of wasmCloud v2 its WorkloadDeployments."""
    if service["kind"] != V2_SERVICE:
        return str(service["application"] or "")
    return ", ".join(_name_of(id_) for id_ in service["deployments"])


def _endpoints(service: Entity, which: str) -> int | None:
    """Return a number of endpoints; the runtime-operator of wasmCloud v2 writes only those that are ready."""
    found: Any = service["endpoints"]
    number: int | None = found[which] if isinstance(found, Mapping) else found
    return number


def _name_of(id_: str | None) -> str:
    return (id_ or "").rpartition("/")[2]


def _shims(entity: Entity) -> str:
    return ", ".join(f"{name}:{item['stage']}" for name, item in entity["shims"].items())


def _reason_and_message(entity: Entity) -> str:
    """Return ``Reason: message``, without a repeated reason."""
    reason, message = entity["reason"] or "", entity["message"] or ""
    return message if message.startswith(f"{reason}:") else ": ".join(filter(None, (reason, message)))


def _count(name: str) -> Callable[[Entity], Any]:
    return lambda entity: entity["counts"].get(name, 0)


_NAMESPACE: Final = _field("NAMESPACE")
_NAME: Final = _field("NAME")
_HEALTH: Final = _field("HEALTH")
_HEAD: Final = (_NAMESPACE, _NAME, _HEALTH)
SHEETS: Final[Mapping[Kind, Sheet]] = {
    Kind.NODES: Sheet(
        "node",
        (_NAME, _HEALTH, _field("PHASE"), Column("SHIMS", _shims), _number("ATTEMPT", lambda item: item["attempt"])),
        ("nodes", "shims", "jobs", "installers", "ledgers"),
    ),
    Kind.SHIMS: Sheet(
        "shim",
        (
            _NAME,
            _HEALTH,
            _field("PHASE"),
            _number("DESIRED", lambda item: item["desired"]),
            _number("UPDATED", _count("Updated")),
            _number("IN PROGRESS", _count("InProgress")),
            _number("FAILED", _count("Failed")),
        ),
        ("shims", "nodes", "ledgers"),
    ),
    Kind.HOST_GROUPS: Sheet(
        "hostgroup",
        (
            *_HEAD,
            _field("LATTICE"),
            _number("DESIRED", lambda item: item["replicas"]["desired"]),
            _number("READY", lambda item: item["replicas"]["ready"]),
            _number("APPS", lambda item: len(item["applications"])),
        ),
        ("groups",),
    ),
    Kind.HOSTS: Sheet(
        "host",
        (
            *_HEAD,
            _field("LATTICE"),
            Column("NODE", lambda item: _name_of(item["node"])),
            _field("REPORTED"),
            _number("COMPONENTS", lambda item: item["components"]),
            _number("PROVIDERS", lambda item: item["providers"]),
        ),
        ("pods", "groups"),
    ),
    Kind.APPLICATIONS: Sheet(
        "application", (*_HEAD, _field("LATTICE"), _field("PHASE"), _field("DEPLOYED")), ("applications",)
    ),
    Kind.SERVICES: Sheet(
        "service",
        (
            *_HEAD,
            Column("APPLICATION", _application),
            Column("ADDRESS", _of_all),
            _number("READY", lambda item: _endpoints(item, "ready")),
            _number("ALL", lambda item: _endpoints(item, "all")),
        ),
        ("services", "slices"),
        parts_v2=tuple(V2_PARTS),
        kinds=("service", V2_SERVICE),
    ),
    Kind.CONTROLLERS: Sheet(
        "controller",
        (
            *_HEAD,
            _field("PHASE"),
            _number("MEMORY", lambda item: item["resident_bytes"], size),
            _number("DISK", lambda item: item["disk_bytes"], size),
            _number("CALLS", lambda item: item["calls"]),
            _number("WAKES", lambda item: item["wakes"]),
            _number("TRAPS", lambda item: item["traps"]),
        ),
        ("controllers",),
    ),
    Kind.WASM_PODS: Sheet(
        "wasmpod",
        (
            _NAMESPACE,
            _NAME,
            _field("KIND"),
            _HEALTH,
            Column("SHIM", lambda item: _name_of(item["shim"])),
            _number("DESIRED", lambda item: item["desired"]),
            _number("READY", lambda item: item["pods"] and item["pods"]["ready"]),
            _number("PODS", lambda item: item["pods"] and item["pods"]["all"]),
            _number("NODES", lambda item: item["nodes_all"]),
        ),
        ("shims", *WASM_PARTS),
        kinds=WASM_KINDS,
    ),
    Kind.V2_HOST_GROUPS: Sheet(
        "whostgroup",
        (
            *_HEAD,
            _number("HOSTS", lambda item: len(item["hosts"])),
            _number("PODS", lambda item: item["pods"] and item["pods"]["all"]),
            _number("READY", lambda item: item["pods"] and item["pods"]["ready"]),
        ),
        (INSTALLED, V2_HOSTS_PART, V2_PODS_PART, "workloads", HEARTBEATS),
        v2=True,
    ),
    Kind.V2_HOSTS: Sheet(
        "whost",
        (
            *_HEAD,
            Column("GROUP", lambda item: _name_of(item["group"])),
            _number("CPU", lambda item: item["cpu_percent"], lambda value: _NONE if value is None else f"{value}%"),
            _number("FREE", lambda item: item["memory_free"], size),
            _number("MEMORY", lambda item: item["memory_total"], size),
            _number("COMPONENTS", lambda item: item["components"]),
            _number("WORKLOADS", lambda item: item["workloads"]),
            _number("PLACED", lambda item: item["placed"]),
        ),
        (INSTALLED, V2_HOSTS_PART, V2_PODS_PART, "workloads", HEARTBEATS),
        v2=True,
    ),
    Kind.V2_DEPLOYMENTS: Sheet(
        "workloaddeployment",
        (
            *_HEAD,
            _number("DESIRED", lambda item: item["desired"]),
            _number("READY", lambda item: item["ready"]),
            _number("HOSTS", lambda item: len(item["hosts"])),
            Column("SERVICE", lambda item: _name_of(item["service"])),
        ),
        (INSTALLED, *V2_PARTS),
        v2=True,
    ),
}


def sorts(kind: Kind) -> list[str]:
    """Return the sort columns of a sheet."""
    return [column.heading.lower() for column in SHEETS[kind].columns]


def shown(kind: Kind, entities: Entities, wanted: Wanted) -> list[tuple[str, Entity]]:
    """Return the entities of a sheet with their ids, filtered and sorted.

    Sort order: by state the worst first, by number the largest first, by text alphabetical; missing values are last. A
    sheet without the column is sorted by state.
    """
    sheet = SHEETS[kind]
    found = [(id_, entry) for id_, entry in entities.items() if sheet.has(entry) and _fits(id_, entry, sheet, wanted)]
    found.sort(key=lambda item: item[0])
    column = next((entry for entry in sheet.columns if entry.heading.lower() == wanted.sort), _HEALTH)
    values = {id_: column.cell(entity) for id_, entity in found}
    have = [item for item in found if values[item[0]] not in {None, ""}]
    have.sort(key=lambda item: _order(column, values[item[0]]), reverse=wanted.reverse)
    return have + [item for item in found if values[item[0]] in {None, ""}]


def rows(kind: Kind, entities: Entities, wanted: Wanted) -> list[Row]:
    """Return the lines of a sheet."""
    columns = SHEETS[kind].columns
    return [
        Row(
            id_,
            item["health"],
            _reason_and_message(item),
            tuple(column.render(column.cell(item)) for column in columns),
            explained=_explained(id_, item),
        )
        for id_, item in shown(kind, entities, wanted)
    ]


def _explained(id_: str, entity: Entity) -> str:
    if entity["kind"] == SHEETS[Kind.HOSTS].of:
        return entity["group"] or ""
    return f"{named_kind(id_)}/{id_.partition('/')[2]}"


def named_kind(id_: str) -> str:
    """Return the kind of an entity as users name it; Services of wasmCloud v2 are Services."""
    kind = id_.partition("/")[0]
    return SHEETS[Kind.SERVICES].of if kind == V2_SERVICE else kind


def counts(kind: Kind, entities: Entities) -> dict[str, int]:
    """Return the number of entities by state, the worst first."""
    found = Counter(entity["health"] for entity in entities.values() if SHEETS[kind].has(entity))
    return {state: found[state] for state in _RANK if found[state]}


def unread(entities: Entities) -> list[str]:
    """Return the parts that are not completely read yet.

    Those of wasmCloud v2 are parts only while it is served, and those of Wasm pods, except their pods, while a Shim
    exists.
    """
    served = not (entities.get(f"{_PART}/{INSTALLED}") or {"lacking": True})["lacking"]
    kinds = [kind for kind in sheets(entities) if served or not SHEETS[kind].v2]
    parts = {part for kind in kinds for part in SHEETS[kind].parts if part != HEARTBEATS} | {INSTALLED}
    watched = {part for part in WASM_PARTS if f"{_PART}/{part}" in entities}
    parts -= {*WASM_PARTS} - watched - {PODS}
    return sorted(part for part in parts if not (entities.get(f"{_PART}/{part}") or {}).get("synced"))


def awaited(entities: Entities) -> bool:
    """Return whether a host of wasmCloud v2 has sent no heartbeat yet."""
    return any(item["kind"] == SHEETS[Kind.V2_HOSTS].of and not item["heartbeat"] for item in entities.values())


def sheets(entities: Entities) -> tuple[Kind, ...]:
    """Return the sheets of the cluster: those of wasmCloud v2 only if it is installed, or if that is unknown."""
    installed = entities.get(f"{_PART}/{INSTALLED}")
    read = installed is not None and (installed["synced"] or f"{_PART}/{V2_HOSTS_PART}" in entities)
    there = installed is not None and installed["defined"] and read
    return tuple(kind for kind in Kind if there or not SHEETS[kind].v2)


def lacking(kinds: Iterable[Kind], entities: Entities) -> list[dict[str, Any]]:
    """Return the missing permissions for these sheets."""
    parts = dict.fromkeys(part for kind in kinds for part in (*SHEETS[kind].parts, *SHEETS[kind].parts_v2))
    found = [(part, entities[f"{_PART}/{part}"]) for part in parts if f"{_PART}/{part}" in entities]
    return [{"part": part} | item for part, entity in found for item in entity["lacking"]]


def notes(kind: Kind, entities: Entities) -> list[str]:
    """Return a line for each reason that makes a sheet incomplete."""
    own = entities.get(f"{_PART}/{SHEETS[kind].parts[0]}")
    lines = [f"{item['message']}: {item['do']}" for item in lacking([kind], entities)]
    if own is not None and not own["defined"] and SHEETS[kind].v2:
        lines.append(f"the cluster has no wasmCloud v2: the API server does not serve {GROUP}")
    elif own is not None and not own["defined"]:
        lines.append(f"the CRD of {kind.value} is missing: `trellis crds apply`")
    return lines


def difference(before: Entities, after: Entities) -> tuple[dict[str, Entity], list[str]]:
    """Return the changed entities and the ids of removed ones between two states."""
    changed = {id_: entity for id_, entity in after.items() if before.get(id_) != entity}
    return changed, [id_ for id_ in before if id_ not in after]


def chosen(kinds: Sequence[Kind], entities: Entities, wanted: Wanted) -> dict[str, Entity]:
    """Return the entities of these sheets that match the filter, in display order."""
    return {id_: entity for kind in kinds for id_, entity in shown(kind, entities, wanted)}


def _order(column: Column, value: Any) -> Any:  # noqa: ANN401 - of one type in each column
    if column is _HEALTH:
        return _RANK[value]
    return -value if column.number else str(column.render(value)).casefold()


def _fits(id_: str, entity: Entity, sheet: Sheet, wanted: Wanted) -> bool:
    terms = wanted.terms.casefold().split()
    if not terms:
        return True
    text = " ".join(
        [id_, _reason_and_message(entity), *(column.render(column.cell(entity)) for column in sheet.columns)]
    )
    return all(word in text.casefold() for word in terms)
