"""Breaks of the console: identity and permissions of viewers."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

DOORS: Final = (
    Break(
        "a request without an Origin header may log in",
        "security: pages of other sites can neither log in nor log out",
        "console",
        "Authentication._from_us",
        "if not origin or origin != host:",
        "if origin and origin != host:",
        "tests/unit/console/test_authentication.py::test_another_sites_page_neither_logs_in_nor_out",
    ),
    Break(
        "links of other sites send the cookie",
        "security: pages of other sites can neither log in nor log out",
        "console",
        "Authentication.log_in",
        'samesite="Strict"',
        'samesite="Lax"',
        "tests/unit/console/test_authentication.py::test_a_token_gives_a_cookie_without_its_content",
    ),
    Break(
        "scripts can read the cookie",
        "ADR 82: no script can read the cookie",
        "console",
        "Authentication.log_in",
        "httponly=True",
        "httponly=False",
        "tests/unit/console/test_authentication.py::test_a_token_gives_a_cookie_without_its_content",
    ),
    Break(
        "attempts to guess tokens have no rate limit",
        "ADR 82: log-ins have a rate limit",
        "console",
        "Authentication.log_in",
        "if not self._logins.take(time.monotonic()):",
        "if not self._logins.rate:",
        "tests/unit/console/test_authentication.py::test_guessing_tokens_is_rate_limited",
    ),
)

VIEWERS: Final = (
    Break(
        "a proxy without a secret is authenticated by an empty one",
        "security: a proxy header counts only with its secret",
        "console",
        "_trusted",
        "bool(proxy.secret)",
        "proxy.secret is not None",
        "tests/unit/console/test_identity.py::test_a_proxy_without_a_secret_is_believed_by_its_certificate_alone",
    ),
    Break(
        "a proxy can name users of the system",
        "security: a header cannot name a `system:` user",
        "console",
        "_name",
        "if name.startswith(_SYSTEM) and not proxy.system:",
        "if name == _SYSTEM and not proxy.system:",
        "tests/unit/console/test_identity.py::test_system_identities_are_refused_unless_a_setting_permits_them",
    ),
    Break(
        "an invalid token logs in as anonymous",
        "ADR 82: the API server identifies the viewer",
        "console",
        "by_token",
        "if user in _ANONYMOUS:",
        "if not user:",
        "tests/unit/console/test_identity.py::test_an_invalid_token_is_refused",
    ),
    Break(
        "a permission that cannot be checked is granted",
        "ADR 82: a check without an answer denies access",
        "console",
        "ReviewedPermissions._find_out",
        "return False",
        "return True",
        "tests/unit/console/test_permissions.py::test_an_api_server_that_does_not_answer_allows_nothing_and_is_asked_again",
    ),
    Break(
        "a message is shown before its access review",
        "security: a message of the bus is shown after a SelfSubjectAccessReview",
        "console",
        "Routes._send_events",
        "if wanted.wants(item) and await permissions.allowed(item.about.permission):",
        "if wanted.wants(item):",
        "tests/unit/console/test_events.py::test_each_message_goes_to_viewers_who_may_see_its_object",
    ),
    Break(
        "an unused session does not expire",
        "ADR 82: an unused session expires",
        "console",
        "Sessions._is_valid",
        "now < session.ends and now - session.used < self._idle",
        "now < session.ends",
        "tests/unit/console/test_sessions.py::test_an_unused_session_ends",
    ),
)
