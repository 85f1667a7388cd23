"""What people are told where a right is missing, or the kind."""

from __future__ import annotations

from application_manager.permissions import RIGHTS, describe_error
from support.suite.naming import lacking
from trellis.kube.errors import Call, Forbidden, NotFound, Unavailable

LIST = Call("GET", "Application", "applications")


def test_a_missing_right_names_the_file_that_gives_it() -> None:
    message = (
        'applications.core.oam.dev is forbidden: User "me" cannot list resource "applications" in API group '
        '"core.oam.dev" at the cluster scope'
    )
    error = Forbidden(LIST, status=403, reason="Forbidden", message=message)
    assert lacking(describe_error(error), "me", "list applications.core.oam.dev", f"kubectl apply -f {RIGHTS}") == []


def test_a_kind_that_is_not_served_names_the_command_that_tells_why() -> None:
    assert "trellis crds check" in describe_error(NotFound(LIST, status=404, reason="NotFound", message="no"))


def test_an_object_that_is_gone_is_no_kind_that_is_gone() -> None:
    error = NotFound(Call("GET", "Application", "applications", "a", "b"), status=404, reason="NotFound", message="no")
    assert describe_error(error) == str(error)


def test_what_nothing_is_known_about_says_it_itself() -> None:
    error = Unavailable(LIST, status=0, reason="Unavailable", message="refused")
    assert describe_error(error) == str(error)
