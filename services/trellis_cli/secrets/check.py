"""``trellis secrets check``: the rules for each secret of an application.

In: flags, a token, the cluster with the permissions of the user. Out: a table or JSON. Called by the command line.
Invariants: nothing is written; no value of a Secret is shown; its existence is shown only to users that may read it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from secrets_backend.domain.decide import Grant, Identity, view_grant
from secrets_backend.domain.tokens import Token, TokenError, TokenKind, read_token
from secrets_backend.permissions import roles_hint
from secrets_backend.settings import Settings
from secrets_backend.timings import Timings
from trellis import names
from trellis.config.settings import load
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, KubeError, NotFound
from trellis.kube.resources import DEFINITIONS, SECRET_GRANTS, SECRETS, Manifest
from trellis.provisioning.nodes_and_jobs import unix_seconds
from trellis.read_model.reading.cluster import REVIEWS
from trellis.read_model.reading.served import list_served
from trellis.read_model.tables.apps import application_of
from trellis_cli.apps.ask import NoLatticeError, group_of, read_groups
from trellis_cli.apps.history import app_of, find_app
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.messages import EXIT_FAILED
from trellis_cli.common.options import (
    AllNamespacesOption,
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    one_namespace,
)
from trellis_cli.common.output import (
    DocumentOption,
    Format,
    NoHeadersOption,
    make_table,
    one_line,
    print_document,
    print_result,
)
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.secrets.model import (
    DEFINITION,
    READING,
    Row,
    RuleInputs,
    Step,
    connection_grant_of,
    impersonation_review,
    judge,
    judge_definition,
    reading_review,
    uses_of,
)

_TOKEN_MAX: Final = 1 << 20
_MARKS: Final = {True: Text("yes", style="green"), False: Text("no", style="bold red"), None: Text("?", style="yellow")}


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments."""

    app: str
    namespace: str | None
    token: Token | None
    users: frozenset[str]
    backend: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of the checks."""

    namespace: str
    application: str
    token: Step
    definition: Step
    rows: list[Row]

    @property
    def ok(self) -> bool:
        """True if no rule denies access to a secret."""
        return False not in {self.token.ok, self.definition.ok} and all(row.ok for row in self.rows)


def check(  # noqa: PLR0913, PLR0917 - options of a command line
    app: Annotated[str, typer.Option("--app", help="Application, or its name in wadm")],
    entity_jwt: Annotated[
        str | None,
        typer.Option("--entity-jwt", metavar="FILE", help="JWT of the component or provider; - is stdin"),
    ] = None,
    namespace: NamespaceOption = None,
    all_namespaces: AllNamespacesOption = False,
    users: Annotated[
        str | None,
        typer.Option("--secrets-users", help="setting of the service, comma-separated [env: TRELLIS_SECRETS_USERS]"),
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--secrets-backend", help="setting of the service [env: TRELLIS_SECRETS_BACKEND]")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Check the access to each secret of an application, rule by rule.

    The token is checked as secrets_backend does; `wash inspect --jwt-only IMAGE` prints that of a component. Then the
    CRD of SecretGrants, and for each secret of the manifest: its policy, the grant of the lattice connection, the
    permission of secrets_backend to impersonate the account, and that of the account to read the Secret; the entry of
    the Secret, if you may read it. Ends with 1 if a rule denies access. JSON: `{"ok", "namespace",
    "application", "token": step, "crd": step, "secrets": [{"ok", "component", "name", "secret", "field",
    "policy", "namespace", "user", "rule", "steps": [step…]}]}`; a step is `{"what", "ok", "text"}`, its `ok` null if
    unknown.
    """
    with exit_on_error(NoLatticeError):
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        token, step = _token(entity_jwt)
        service = load(Settings, secrets_users=users, secrets_backend=backend)
        wanted = app_of([app], one_namespace(namespace, all_namespaces=all_namespaces))
        arguments = Arguments(
            wanted.name, wanted.namespace, token, frozenset(service.secrets_users), service.secrets_backend
        )
        checked = asyncio.run(_check(settings, arguments, step))
        _show(checked, output, no_headers=no_headers)
        if not checked.ok:
            raise SystemExit(EXIT_FAILED)


def _token(source: str | None) -> tuple[Token | None, Step]:
    """Return the token of a file, None if it is invalid, and its step.

    Raises:
        CommandError: the file cannot be read.
    """
    if source is None:
        return None, Step("token", None, "not given; the checks assume a valid token")
    try:
        token = read_token(_text(source), TokenKind.ENTITY, time.time())
    except TokenError as error:
        return None, Step("token", False, f"invalid (InvalidEntityJWT): {error}")
    return token, Step("token", True, f"{token.name or '(no name)'}, {token.subject}, signed by {token.issuer}")


def _text(source: str) -> str:
    try:
        raw = sys.stdin.buffer.read(_TOKEN_MAX) if source == "-" else Path(source).read_bytes()[:_TOKEN_MAX]
    except OSError as error:
        raise CommandError(f"--entity-jwt: {source}: {error.strerror}") from None
    return raw.decode("utf-8", "replace").strip()


async def _check(settings: ClientSettings, arguments: Arguments, token: Step) -> Checked:
    async with connected(settings) as kube:
        app = await find_app(kube, arguments.app, arguments.namespace)
        metadata = app["metadata"]
        label = str((metadata.get("labels") or {}).get(names.LABEL_LATTICE) or "")
        groups = await read_groups(kube)
        group = group_of(groups, metadata["namespace"], label)
        grants, definition = await asyncio.gather(_grants(kube), _definition(kube))
        connection = replace(connection_grant_of(group, groups, grants), known=definition.ok is not False)
        around = RuleInputs(connection, arguments.token, arguments.users, arguments.backend)
        rows = [judge(app, use, around) for use in uses_of(app)]
        asking = Asking(kube, settings.namespace)
        rows = list(await asyncio.gather(*map(asking.complete, rows)))
    return Checked(metadata["namespace"], application_of(metadata), token, definition, rows)


async def _definition(kube: Kube) -> Step:
    """Return the step for the CRD of SecretGrants, evaluated as in secrets_backend."""
    try:
        found = await kube.get(DEFINITIONS, SECRET_GRANTS.definition)
    except NotFound:
        return judge_definition(None, 0.0, 0.0)
    except KubeError as error:
        return Step(DEFINITION, None, f"unknown: {error}")
    age = time.time() - (unix_seconds(found["metadata"]["creationTimestamp"]) or 0)
    return judge_definition(found, age, Timings().grants)


async def _grants(kube: Kube) -> list[Grant]:
    """Return all SecretGrants; empty if the CRD is missing.

    Raises:
        NotServedError: the CRD exists and is not served.
        KubeError: they could not be listed.
    """
    return [view_grant(item) for item in await list_served(kube, SECRET_GRANTS) or ()]


@dataclass(frozen=True, slots=True)
class Asking:
    """Queries the API server for permissions and Secrets. ``home``: namespace of the installation."""

    kube: Kube
    home: str

    async def complete(self, row: Row) -> Row:
        """Return a row with the decisions of the API server."""
        identity = row.identity
        if identity is None:
            return row
        secret = row.use.secret
        be, read, there = await asyncio.gather(
            self._allowed(impersonation_review(identity, self.home)),
            self._allowed(reading_review(identity, secret)),
            self._there(identity, secret, row.use.entry),
        )
        return row.and_then(
            _right("impersonation", f"secrets_backend may impersonate {identity.user}", be, roles_hint(identity)),
            _right(
                READING,
                f"{identity.user} may read Secret {identity.namespace}/{secret}",
                read,
                roles_hint(identity, secret),
            ),
            there,
        )

    async def _allowed(self, review: dict[str, Any]) -> bool | str:
        """Return whether access is allowed, or why that is unknown."""
        try:
            answer = await self.kube.create(REVIEWS, {**review, "metadata": {"name": ""}})
        except KubeError as error:
            return str(error)
        return bool((answer.get("status") or {}).get("allowed"))

    async def _there(self, identity: Identity, secret: str, entry: str) -> Step:
        place = f"Secret {identity.namespace}/{secret}"
        try:
            found: Manifest = await self.kube.get(SECRETS, secret, identity.namespace)
        except NotFound:
            return Step("secret", False, f"{place} does not exist")
        except Forbidden:
            return Step("secret", None, f"existence of {place} unknown: this account may not read it")
        except KubeError as error:
            return Step("secret", None, str(error))
        data: Mapping[str, str] = found.get("data") or {}
        if entry not in data:
            have = ", ".join(sorted(data)) or "none"
            return Step("secret", False, f"{place} has no entry {entry}; it has: {have}")
        return Step("secret", True, f"{place} has the entry {entry}, {_size(data[entry])} bytes")


def _size(value: str) -> int:
    try:
        return len(base64.b64decode(value or "", validate=True))
    except binascii.Error:
        return 0


def _right(what: str, sentence: str, allowed: bool | str, remedy: str) -> Step:
    if isinstance(allowed, str):
        return Step(what, None, f"unknown: {sentence}: {allowed}")
    if allowed:
        return Step(what, True, sentence)
    return Step(what, False, f"{sentence.replace(' may ', ' may not ', 1)}: {remedy}")


def _show(checked: Checked, output: Format, *, no_headers: bool) -> None:
    if output.structured:
        document = {
            "ok": checked.ok,
            "namespace": checked.namespace,
            "application": checked.application,
            "token": checked.token.document(),
            "crd": checked.definition.document(),
            "secrets": [row.document() for row in checked.rows],
        }
        print_document(output, document)
        return
    table = make_table("SECRET", "RULE", "OK", "MESSAGE", fold={"SECRET", "MESSAGE"})
    for step in (checked.token, checked.definition):
        table.add_row(Text(""), Text(step.what), _MARKS[step.ok], Text(one_line(step.text)))
    for row in checked.rows:
        title = f"{row.use.name} of {row.use.place}"
        for index, step in enumerate(row.steps):
            first = Text(one_line(title) if index == 0 else "")
            table.add_row(first, Text(step.what), _MARKS[step.ok], Text(one_line(step.text)))
    print_result(table, no_headers=no_headers)
    if not checked.rows:
        print_result(Text(f"{checked.namespace}/{checked.application} has no secrets"))
