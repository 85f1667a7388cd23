"""Messages for a missing permission or a missing CRD."""

from __future__ import annotations

from application_manager.permissions import MANIFEST, describe_error
from support.suite.naming import lacking
from trellis.kube.errors import Call, Forbidden, NotFound, Unavailable

LIST = Call("GET", "Application", "applications")


def test_a_missing_right_names_the_file_that_gives_it() -> None:
    message = (
        'applications.core.oam.dev is forbidden: User "me" cannot list resource "applications" in API group '
        '"core.oam.dev" at the cluster scope'
    )
    error = Forbidden(LIST, status=403, reason="Forbidden", message=message)
    assert lacking(describe_error(error), "me", "list applications.core.oam.dev", f"kubectl apply -f {MANIFEST}") == []


def test_a_missing_crd_names_the_command_that_explains_it() -> None:
    assert "trellis crds check" in describe_error(NotFound(LIST, status=404, reason="NotFound", message="no"))


def test_a_deleted_object_is_not_a_deleted_crd() -> None:
    error = NotFound(Call("GET", "Application", "applications", "a", "b"), status=404, reason="NotFound", message="no")
    assert describe_error(error) == str(error)


def test_a_forbidden_or_missing_kind_without_a_rule_reports_its_own_error() -> None:
    error = Unavailable(LIST, status=0, reason="Unavailable", message="refused")
    assert describe_error(error) == str(error)
