"""Objects found by a label are those that looking at each of them would find."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from controller_host.domain.label_index import LabelIndex
from controller_host.domain.watch_specs import Term

KEYS, VALUES, PLACES, NAMES = ("app", "tier"), ("a", "b", ""), ("one", "two"), ("x", "y", "z")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
CHANGES = st.tuples(st.sampled_from(PLACES), st.sampled_from(NAMES), st.none() | LABELS)
QUESTIONS = st.tuples(
    st.sampled_from(PLACES),
    st.builds(Term, st.sampled_from(KEYS), st.lists(st.sampled_from(VALUES), min_size=1, unique=True).map(tuple)),
)


@dataclass
class Thing:
    labels: dict[str, str] = field(default_factory=dict)


@given(st.lists(CHANGES | QUESTIONS | st.none()))
def test_the_index_finds_the_objects_of_a_full_scan(steps: list[tuple[object, ...] | None]) -> None:
    index, objects = LabelIndex(), {place: dict[str, Thing]() for place in PLACES}
    for step in steps:
        match step:
            case None:
                index.clear()
            case (str(place), Term() as term):
                wanted = [name for name, item in objects[place].items() if term.holds(item.labels)]
                found = list(index.find(objects, place, term))
                assert sorted(found) == sorted(wanted)
            case (str(place), str(name), labels):
                assert labels is None or isinstance(labels, dict)
                old = objects[place].pop(name, None)
                if labels is not None:
                    objects[place][name] = Thing(labels)
                index.change(place, name, old.labels if old else None, labels)


def test_a_query_examines_only_objects_with_the_label() -> None:
    looked: list[str] = []

    class Watched(Thing):
        def __getattribute__(self, name: str) -> object:
            looked.append(name)
            return super().__getattribute__(name)

    objects = {"one": {f"n{number}": Watched({"ring": str(number)}) for number in range(50)}}
    index = LabelIndex()
    for number in range(50):
        assert list(index.find(objects, "one", Term("ring", (str(number),)))) == [f"n{number}"]
    assert len(looked) == 50
