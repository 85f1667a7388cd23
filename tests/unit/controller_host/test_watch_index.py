"""The index finds exactly those that asking every one would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller_host.domain.watch_index import WatchIndex
from controller_host.domain.watch_specs import Term, WatchSpec, specs_of
from trellis.crds.wasm_controllers import Watch

NAMESPACES = ("a", "b", "c")
KEYS = ("app", "tier")
VALUES = ("x", "y")

terms = st.builds(
    Term,
    key=st.sampled_from(KEYS),
    values=st.one_of(st.none(), st.lists(st.sampled_from(VALUES), min_size=1, unique=True).map(tuple)),
    negated=st.booleans(),
)
specs = st.builds(
    WatchSpec,
    api_version=st.just("v1"),
    kind=st.just("ConfigMap"),
    namespaces=st.one_of(st.none(), st.lists(st.sampled_from(NAMESPACES), min_size=1, unique=True).map(tuple)),
    terms=st.lists(terms, max_size=3).map(tuple),
)
watches = st.lists(st.tuples(st.sampled_from([f"team/{number}" for number in range(6)]), specs), max_size=12)
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from((*VALUES, "z")))


@given(watches, st.sets(st.sampled_from([f"team/{number}" for number in range(6)])), labels)
def test_the_index_finds_the_same_watchers_as_a_full_scan(
    wanted: list[tuple[str, WatchSpec]], deleted: set[str], found: dict[str, str]
) -> None:
    watch_index = WatchIndex()
    for controller, spec in wanted:
        watch_index.add(controller, spec)
    for controller in deleted:
        watch_index.remove(controller)
    left = [(controller, spec) for controller, spec in wanted if controller not in deleted]
    for namespace in (*NAMESPACES, "d", ""):
        assert watch_index.concerned(namespace, found) == {
            controller for controller, spec in left if spec.means(namespace, found)
        }
    assert bool(watch_index) == bool(left)
    for controller in {item for item, _ in left}:
        watch_index.remove(controller)
    assert not watch_index._places, "nothing is kept of nobody"


def test_a_selector_means_what_kubernetes_means_by_it() -> None:
    watch = Watch.model_validate(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "labelSelector": {
                "matchLabels": {"app": "x"},
                "matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": ["db"]},
                    {"key": "old", "operator": "DoesNotExist"},
                    {"key": "team", "operator": "Exists"},
                    {"key": "zone", "operator": "In", "values": ["1", "2"]},
                ],
            },
        }
    )
    (spec,) = specs_of([watch, watch], "home")
    assert spec.namespaces == ("home",)
    good = {"app": "x", "team": "", "zone": "2"}
    assert spec.means("home", good)
    assert not spec.means("other", good)
    for change in ({"app": "y"}, {"tier": "db"}, {"old": ""}, {"zone": "3"}):
        assert not spec.means("home", good | change)
    assert not spec.means("home", {key: value for key, value in good.items() if key != "team"})
    assert spec.means("home", good | {"tier": "web"})


def test_every_namespace_is_one_entry() -> None:
    watch = Watch.model_validate({"apiVersion": "v1", "kind": "Pod", "namespaces": ["*"]})
    assert specs_of([watch], "home")[0].namespaces is None
