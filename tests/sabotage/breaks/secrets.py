"""Breaks of secrets_backend: the receivers of a Secret, and published data about it."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

GRANTS: Final = (
    Break(
        "Secrets are granted while SecretGrants cannot be listed",
        "security: unknown grants refuse every request",
        "secrets_backend",
        "identify",
        "if not connection.known:",
        "if not connection.known and not connection.home:",
        "tests/unit/secrets_backend/test_decide.py::"
        "test_while_secret_grants_cannot_be_listed_nothing_is_granted_and_it_is_no_error_of_the_policy",
    ),
    Break(
        "a namespace whose grant may have been deleted with its CRD is open",
        "security: unknown grants refuse every request",
        "secrets_backend",
        "identify",
        "if policy.namespace in connection.unsure:",
        "if policy.namespace in connection.unsure and not connection.home:",
        "tests/unit/secrets_backend/test_decide.py::"
        "test_a_namespace_whose_grant_may_be_deleted_with_its_crd_is_refused_and_others_are_not",
    ),
    Break(
        "every namespace is open by default",
        "ADR 50: a lattice connection is granted the namespaces of its host groups",
        "secrets_backend",
        "_by_default",
        "if namespace not in connection.home:",
        "if not namespace:",
        "tests/unit/secrets_backend/test_decide.py::test_another_namespace_is_refused_with_the_grant_to_create",
    ),
    Break(
        "a grant that cannot be parsed opens its namespace",
        "security: a grant that cannot be parsed refuses every request",
        "secrets_backend",
        "Grant.is_for",
        "return True",
        "return False",
        "tests/unit/secrets_backend/test_decide.py::"
        "test_a_grant_that_cannot_be_read_closes_its_namespace_rather_than_open_it",
    ),
    Break(
        "an entity of any issuer is accepted",
        "ADR 50: only entities of the issuers in a grant",
        "secrets_backend",
        "identify",
        "spec.entity_issuers is None or token.issuer in spec.entity_issuers",
        "spec.entity_issuers is None or token.issuer",
        "tests/unit/secrets_backend/test_decide.py::"
        "test_only_entities_of_the_issuers_that_a_grant_names_are_let_through",
    ),
    Break(
        "a user that the platform does not list is impersonated",
        "security: only users that the platform lists are impersonated",
        "secrets_backend",
        "identify",
        "if user and user in users and user in (spec.users or ()):",
        "if user and user in (spec.users or ()):",
        "tests/unit/secrets_backend/test_decide.py::"
        "test_a_user_of_the_grant_alone_is_refused_and_the_platforms_list_is_named",
    ),
)

TOKENS: Final = (
    Break(
        "a token is valid for one second longer",
        "security: a token expires at its exact second",
        "secrets_backend",
        "_check_times",
        "now >= expires",
        "now > expires",
        "tests/unit/secrets_backend/test_claims.py::test_a_token_ends_at_the_second_it_names",
    ),
    Break(
        "a wrong signature is accepted",
        "security: a token is signed by its issuer",
        "secrets_backend",
        "_verifies",
        "if len(signature) != _SIGNATURE_BYTES:",
        "if len(signature) == _SIGNATURE_BYTES:",
        "tests/unit/secrets_backend/test_tokens.py::test_a_token_is_taken",
    ),
    Break(
        "a token of one kind is accepted as another",
        "security: a token has the required kind",
        "secrets_backend",
        "_read_claims",
        '_key("sub", subject, kind.value)',
        '_key("sub", subject, (*TokenKind.HOST.value, *TokenKind.ENTITY.value))',
        "tests/unit/secrets_backend/test_tokens.py::test_a_token_is_not_taken_for_another_kind",
    ),
    Break(
        "a Secret is read as the service instead of the account in the policy",
        "security: RBAC decides for the impersonated account",
        "secrets_backend",
        "Lookup.read",
        "self.kube.acting_as(identity.user)",
        "self.kube",
        "tests/unit/secrets_backend/test_answering.py::test_a_secret_is_read_as_the_account_of_the_policy",
    ),
    Break(
        "the cache returns the Secret of one user to another",
        "security: each read is authorized for its user",
        "secrets_backend",
        "Lookup.read",
        "(identity.user, identity.namespace, name)",
        '("", identity.namespace, name)',
        "tests/unit/secrets_backend/test_answering.py::test_a_cached_secret_is_not_given_to_another_user",
    ),
    Break(
        "a deleted key is replaced by a different one",
        "secrets: hosts keep the key that they received",
        "secrets_backend",
        "Key._read_or_make",
        "ring = self._ring or KeyRing(CurveKey.make(), ())",
        "ring = KeyRing(CurveKey.make(), ())",
        "tests/unit/secrets_backend/test_key.py::test_a_deleted_key_that_may_not_be_recreated_is_reported_until_it_is",
    ),
)

ANSWERS: Final = (
    Break(
        "an internal error is logged with its text",
        "security: no log contains a Secret",
        "secrets_backend",
        "Answering._answer",
        "error=type(error).__name__",
        "error=str(error)",
        "tests/unit/secrets_backend/test_answering.py::"
        "test_a_fault_inside_is_an_answer_that_holds_nothing_of_the_secret",
    ),
    Break(
        "one tenant exhausts the rate limit of another by claiming its entity",
        "security: one tenant does not reduce the limits of another",
        "secrets_backend",
        "Answering._limit",
        "(grant.groups, opened.entity.subject)",
        "opened.entity.subject",
        "tests/unit/secrets_backend/test_answering.py::test_a_claim_of_another_tenants_entity_uses_none_of_its_rate",
    ),
    Break(
        "arbitrary names use memory without a bound",
        "security: memory is bounded for any number of names",
        "secrets_backend",
        "Limits.allows",
        "if len(self._left) > MOST_ENTITIES:",
        "if len(self._left) < 0:",
        "tests/unit/secrets_backend/test_limits.py::test_names_that_are_made_up_take_no_more_memory_after_a_while",
    ),
    Break(
        "a flood of one source hides the audit events of other sources",
        "security: a flood of one source hides no other audit event",
        "secrets_backend",
        "Audit._drop_newest",
        "max(self._waiting.items()",
        "min(self._waiting.items()",
        "tests/unit/secrets_backend/test_audit.py::"
        "test_a_flood_of_one_source_drops_no_event_of_another_and_delays_it_by_one",
    ),
    Break(
        "connections of different accounts share their grants",
        "ADR 50: the grant belongs to the lattice connection",
        "secrets_backend",
        "Cache._connection_grant",
        "if self.addresses.get(key) in same",
        "if self.addresses.get(key)",
        "tests/unit/secrets_backend/test_gather.py::test_links_of_one_account_share_what_they_have_and_others_do_not",
    ),
)
