"""Changes of wadm's list of applications by its events, and the time of the next list request."""

from __future__ import annotations

from trellis.lattice.domain.model_list import ModelList
from trellis.lattice.domain.models import Model
from trellis.lattice.timings import ModelWatchTimings

TIMINGS = ModelWatchTimings(quiet=1.0)


def listed(*models: Model) -> ModelList:
    made = ModelList(TIMINGS)
    made.asking()
    made.listed(models)
    return made


def shown(one: ModelList) -> list[tuple[str, str]]:
    return [(model.name, model.version) for model in one.models or ()]


def test_three_hundred_deployments_of_what_was_put_need_no_list() -> None:
    models = listed(*(Model(f"app-{number}", "v1") for number in range(300)))
    for number in range(300):
        models.deployed(f"app-{number}", "v1", float(number))
    assert models.due_in(300.0) is None
    assert all(model.deployed == "v1" for model in models.models or ())


def test_a_deployment_of_an_unlisted_application_is_shown_at_once_and_requested_after_the_burst() -> None:
    models = listed(Model("shop", "v1"))
    models.deployed("api", "v1", 10.0)
    assert shown(models) == [("api", "v1"), ("shop", "v1")]
    assert models.due_in(10.5) == 0.5
    models.asking()
    assert models.due_in(12.0) is None


def test_another_version_is_shown_at_once_and_requested_as_it_may_be_outdated() -> None:
    models = listed(Model("shop", "v2"))
    models.deployed("shop", "v1", 10.0)
    assert shown(models) == [("shop", "v1")]
    assert models.due_in(11.0) == 0.0


def test_an_event_during_a_list_request_causes_another_request() -> None:
    models = listed()
    models.invalidate(1.0)
    models.asking()
    models.invalidate(1.1)
    models.listed(())
    assert models.due_in(1.1) == 1.0


def test_before_the_first_list_nothing_is_known() -> None:
    models = ModelList(TIMINGS)
    models.deployed("shop", "v1", 1.0)
    assert models.models is None


def test_a_deployment_during_a_list_request_causes_another_request() -> None:
    models = listed(Model("shop", "v1"))
    models.asking()
    models.deployed("shop", "v1", 1.0)
    models.listed([Model("shop", "v1")])
    assert models.due_in(1.0) == 1.0
    first = ModelList(TIMINGS)
    first.asking()
    first.deployed("new", "v1", 1.0)
    first.listed([])
    assert first.due_in(1.0) == 1.0
    first.asking()
    first.unanswered()
    first.deployed("new", "v1", 2.0)
    assert first.due_in(2.0) is None


def test_a_list_that_is_older_than_a_deployment_does_not_revert_it() -> None:
    models = listed(Model("api", "v1", deployed="v1"), Model("shop", "v1"))
    models.asking()
    models.deployed("api", "v2", 1.0)
    models.deployed("new", "v1", 2.0)
    models.deployed("shop", "v1", 3.0)
    models.deployed("gone", "v1", 4.0)
    models.undeployed("gone", 5.0)
    models.listed([Model("api", "v1", deployed="v1"), Model("shop", "v2", deployed="v1")])
    assert shown(models) == [("api", "v2"), ("new", "v1"), ("shop", "v2")]
    assert models.due_in(5.5) == 0.5
    models.asking()
    models.listed([Model("shop", "v2", deployed="v1")])
    assert shown(models) == [("shop", "v2")]
