"""The NATS subjects of a lattice.

Pure. In: the name of a lattice, the ID of a host, an account. Out: NATS subjects and back. Called by the rest of
``trellis.lattice``. Source: the control interface v1 of wasmCloud (``<prefix>.v1.<lattice>.<noun>.<verb>``), its events
(``wasmbus.evt.<lattice>.<event>``), wadm 0.21 (``wadm.api.<lattice>.model.<verb>``, ``wadm.evt.<lattice>.<event>``),
the secrets protocol (``wasmcloud.secrets.v1alpha1.<backend>.<operation>``, queue ``wasmcloud.secrets.<backend>``). In
the account of a wadm for several tenants (``--multitenant``) the account of the tenant precedes requests and events of
hosts, but not messages of wadm. Invariant: a name that is not one token never becomes part of a subject, which could
belong to another tenant.
"""

from __future__ import annotations

import re
from typing import Final

CONTROL_PREFIX: Final = "wasmbus.ctl"
"""What control subjects begin with, unless a host group sets another."""

HOST_HEARTBEAT: Final = "host_heartbeat"
HOST_STARTED: Final = "host_started"
HOST_STOPPED: Final = "host_stopped"
PROVIDER_STARTED: Final = "provider_started"
PROVIDER_STOPPED: Final = "provider_stopped"
CONFIG_SET: Final = "config_set"
CONFIG_DELETED: Final = "config_deleted"
MANIFEST_PUBLISHED: Final = "manifest_published"
MANIFEST_UNPUBLISHED: Final = "manifest_unpublished"
HOST_EVENTS: Final = (HOST_HEARTBEAT, HOST_STARTED, HOST_STOPPED)

_EVENTS: Final = "wasmbus.evt"
_CONFIGURATIONS: Final = "CONFIGDATA"
_WADM_API: Final = "wadm.api"
_WADM_EVENTS: Final = "wadm.evt"
_CONTROL_VERSION: Final = "v1"
_SAID_TOKENS: Final = 4
"""``wasmbus.evt.<lattice>.<event>``, ``wadm.evt.<lattice>.<event>``, ``wadm.status.<lattice>.<application>``."""
# NATS separates tokens by dots; wildcards, white space and control characters cannot be in one.
_TOKEN = re.compile(r"[^\s.*>\x00-\x1f\x7f]+")
_TOKENS = re.compile(rf"{_TOKEN.pattern}(?:\.{_TOKEN.pattern})*")
# wadm passes over the hosts of what does not begin with "A", as NATS' own names of accounts do; and the account has to
# be part of a key of its bucket.
_ACCOUNT_PREFIX = re.compile(rf"(A[-/_=A-Za-z0-9]*)\.{re.escape(CONTROL_PREFIX)}")


STREAM_WADM: Final = "wadm_events"
STREAM_HOSTS: Final = "wasmbus_events"
"""The streams in which wadm keeps the events of all lattices of its NATS, for 70 s."""

STREAM_MODELS: Final = "KV_wadm_manifests"
"""The stream of the bucket in which wadm keeps the applications of all lattices of its NATS."""
MODEL_KEYS: Final = "$KV.wadm_manifests."
"""What the subject of an entry of that bucket begins with; the rest is its key."""
_WADM_STATUS: Final = "wadm.status"
_COPIED: Final = ("manifest_", "provider_", "component_", "host_started", "host_stopped", "linkdef_", "health_")


_SECRETS: Final = "wasmcloud.secrets"
_SECRETS_VERSION: Final = "v1alpha1"


class SubjectError(ValueError):
    """A name that cannot stand in a NATS subject; the text says which and why, for users."""


def account_of(control_prefix: str) -> str:
    """Return the tenant that a control prefix ``<account>.wasmbus.ctl`` names, "" if it names none.

    Whoever gives that prefix is in the account of a wadm for several tenants, where the tenant's subjects have it.
    """
    found = _ACCOUNT_PREFIX.fullmatch(control_prefix)
    return found[1] if found is not None else ""


def event_subject(lattice: str, event: str, account: str = "") -> str:
    """Return where an event of a lattice's hosts is heard.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return f"{_of(account)}{_EVENTS}.{_token('lattice', lattice)}.{event}"


def event_subjects(lattice: str, event: str, account: str = "") -> tuple[str, ...]:
    """Return everywhere an event of a lattice's hosts may be heard.

    Hosts say it without an account; NATS puts that before it on the way from the tenant's. Those in wadm's own account
    are heard as they say it.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return tuple(dict.fromkeys(event_subject(lattice, event, one) for one in (account, "")))


def wadm_events_subject(lattice: str) -> str:
    """Return where wadm says what happens to a lattice's applications: published, unpublished, all of it.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return f"{_WADM_EVENTS}.{_token('lattice', lattice)}.>"


def wadm_event_of(subject: str) -> str:
    """Return the event that a message of wadm's is about."""
    return subject.rpartition(".")[2]


def event_streams(lattice: str, account: str = "") -> dict[str, str]:
    """Return by stream of wadm's what selects a lattice's events in it.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return {STREAM_WADM: wadm_events_subject(lattice), STREAM_HOSTS: event_subject(lattice, ">", account)}


def copied_event(subject: str) -> str | None:
    """Return the event a message of a lattice is about if it is copied for others, else None.

    Heartbeats are read where they are said, and ``config_*`` may have secrets in it.
    """
    event = event_of(subject) or _after(_WADM_EVENTS, subject)
    return event if event is not None and event.startswith(_COPIED) else None


def model_list_subject(lattice: str, account: str = "") -> str:
    """Return where wadm answers with a lattice's applications.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return f"{_of(account)}{_WADM_API}.{_token('lattice', lattice)}.model.list"


def model_put_subject(lattice: str, account: str = "") -> str:
    """Return where wadm takes a version of an application.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return f"{_of(account)}{_WADM_API}.{_token('lattice', lattice)}.model.put"


def model_list_key(lattice: str, account: str = "") -> str:
    """Return the key under which wadm's bucket has the names of a lattice's applications."""
    return f"{account}-{lattice}" if account else lattice


def model_subject(lattice: str, verb: str, application: str, account: str = "") -> str:
    """Return where wadm is asked to do something with an application: get, deploy, undeploy, del, versions, status.

    Raises:
        SubjectError: one of the names cannot stand in a subject.
    """
    name = _token("application", application)
    return f"{_of(account)}{_WADM_API}.{_token('lattice', lattice)}.model.{verb}.{name}"


def model_get_subject(lattice: str, application: str, account: str = "") -> str:
    """Return where wadm answers with an application's manifest.

    Raises:
        SubjectError: one of the names cannot stand in a subject.
    """
    return model_subject(lattice, "get", application, account)


def status_subject(lattice: str) -> str:
    """Return where wadm says how the applications of a lattice are, each under its name, when that changes.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return f"{_WADM_STATUS}.{_token('lattice', lattice)}.*"


def status_of(subject: str) -> str | None:
    """Return whose status a message is about, None if it is about nobody's."""
    return _after(_WADM_STATUS, subject)


def host_ping_subject(lattice: str, prefix: str = CONTROL_PREFIX) -> str:
    """Return where every host of a lattice answers that it is there.

    Raises:
        SubjectError: the lattice's name or the prefix cannot stand in a subject.
    """
    return f"{_control(lattice, prefix)}.host.ping"


def host_get_subject(lattice: str, host: str, prefix: str = CONTROL_PREFIX) -> str:
    """Return where one host answers with what runs on it.

    Raises:
        SubjectError: one of the names cannot stand in a subject.
    """
    return f"{_control(lattice, prefix)}.host.get.{_token('host', host)}"


def configuration_subject(lattice: str, name: str) -> str:
    """Return where a named configuration is kept, in its lattice's KV bucket.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return f"$KV.{_CONFIGURATIONS}_{_token('lattice', lattice)}.{name}"


def configuration_ask_subject(lattice: str, name: str, prefix: str) -> str:
    """Return where a host answers with a named configuration.

    Raises:
        SubjectError: one of the names cannot stand in a subject.
    """
    return f"{_control(lattice, prefix)}.config.get.{_token('configuration', name)}"


def configuration_get_subject(lattice: str) -> str:
    """Return where JetStream answers with a named configuration.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return f"$JS.API.STREAM.MSG.GET.KV_{_CONFIGURATIONS}_{_token('lattice', lattice)}"


def secrets_subject(backend: str, operation: str) -> str:
    """Return where hosts ask a backend for secrets: ``get``, ``server_xkey``, or ``>`` for every operation.

    Raises:
        SubjectError: the backend's name cannot stand in a subject.
    """
    return f"{_SECRETS}.{_SECRETS_VERSION}.{_token('backend', backend)}.{operation}"


def secrets_queue(backend: str) -> str:
    """Return the queue group of a backend's servers; secrets-kubernetes is in the same.

    Raises:
        SubjectError: the backend's name cannot stand in a subject.
    """
    return f"{_SECRETS}.{_token('backend', backend)}"


def event_of(subject: str) -> str | None:
    """Return the event a message of a lattice's hosts is about, None if it is about none.

    In wadm's own account NATS has put the tenant before it: ``<account>.wasmbus.evt.<lattice>.<event>``.
    """
    found = _after(_EVENTS, subject)
    return found if found is not None else _after(_EVENTS, subject.partition(".")[2])


def _after(prefix: str, subject: str) -> str | None:
    """Return the last token of ``<prefix>.<lattice>.<token>``, None if the subject has another form."""
    tokens = subject.split(".")
    return tokens[-1] if ".".join(tokens[:2]) == prefix and len(tokens) == _SAID_TOKENS else None


def _of(account: str) -> str:
    return f"{_token('account', account)}." if account else ""


def _control(lattice: str, prefix: str) -> str:
    if not _TOKENS.fullmatch(prefix):
        raise SubjectError(f"the control topic prefix {prefix!r} is not a NATS subject of names separated by dots")
    return f"{prefix}.{_CONTROL_VERSION}.{_token('lattice', lattice)}"


def _token(what: str, name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise SubjectError(f"the {what} {name!r} cannot be part of a NATS subject: no dots, spaces, '*' or '>'")
    return name
