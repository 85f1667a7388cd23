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
"""Default prefix of control subjects; a host group can set another."""

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
_EVENT_TOKENS: Final = 4
"""``wasmbus.evt.<lattice>.<event>``, ``wadm.evt.<lattice>.<event>``, ``wadm.status.<lattice>.<application>``."""
# NATS separates tokens by dots; a token contains no wildcards, white space or control characters.
_TOKEN = re.compile(r"[^\s.*>\x00-\x1f\x7f]+")
_TOKENS = re.compile(rf"{_TOKEN.pattern}(?:\.{_TOKEN.pattern})*")
# wadm ignores hosts of accounts whose name does not start with "A", as NATS account keys do; and the account must be
# valid in a key of its bucket.
_ACCOUNT_PREFIX = re.compile(rf"(A[-/_=A-Za-z0-9]*)\.{re.escape(CONTROL_PREFIX)}")


STREAM_WADM: Final = "wadm_events"
STREAM_HOSTS: Final = "wasmbus_events"
"""The streams of wadm with the events of all lattices of its NATS, kept for 70 s."""

STREAM_MODELS: Final = "KV_wadm_manifests"
"""The stream of the bucket of wadm with the applications of all lattices of its NATS."""
MODEL_KEYS: Final = "$KV.wadm_manifests."
"""Prefix of the subjects of entries of that bucket; the rest is the key."""
_WADM_STATUS: Final = "wadm.status"
_COPIED: Final = ("manifest_", "provider_", "component_", "host_started", "host_stopped", "linkdef_", "health_")


_SECRETS: Final = "wasmcloud.secrets"
_SECRETS_VERSION: Final = "v1alpha1"


class SubjectError(ValueError):
    """A name that is invalid in a NATS subject; the message has the name and the reason, for users."""


def account_of(control_prefix: str) -> str:
    """Return the tenant in a control prefix ``<account>.wasmbus.ctl``, "" if there is none.

    Such a prefix applies in the account of a multitenant wadm, where the subjects of the tenant have it.
    """
    found = _ACCOUNT_PREFIX.fullmatch(control_prefix)
    return found[1] if found is not None else ""


def event_subject(lattice: str, event: str, account: str = "") -> str:
    """Return the subject of an event of the hosts of a lattice.

    Raises:
        SubjectError: the name of the lattice is invalid in subjects.
    """
    return f"{_of(account)}{_EVENTS}.{_token('lattice', lattice)}.{event}"


def event_subjects(lattice: str, event: str, account: str = "") -> tuple[str, ...]:
    """Return all subjects of an event of the hosts of a lattice.

    Hosts publish it without an account; NATS adds the account on the way from that of the tenant. Hosts in the account
    of wadm itself are received without it.

    Raises:
        SubjectError: the name of the lattice is invalid in subjects.
    """
    return tuple(dict.fromkeys(event_subject(lattice, event, item) for item in (account, "")))


def wadm_events_subject(lattice: str) -> str:
    """Return the subject of all wadm events of the applications of a lattice: published, unpublished.

    Raises:
        SubjectError: the name of the lattice is invalid in subjects.
    """
    return f"{_WADM_EVENTS}.{_token('lattice', lattice)}.>"


def wadm_event_of(subject: str) -> str:
    """Return the event name in the subject of a wadm message."""
    return subject.rpartition(".")[2]


def event_streams(lattice: str, account: str = "") -> dict[str, str]:
    """Return the filter subjects of the events of a lattice, by stream of wadm.

    Raises:
        SubjectError: the name of the lattice is invalid in subjects.
    """
    return {STREAM_WADM: wadm_events_subject(lattice), STREAM_HOSTS: event_subject(lattice, ">", account)}


def copied_event(subject: str) -> str | None:
    """Return the event name of a lattice message to forward, None for other messages.

    Heartbeats are read from the lattice itself, and ``config_*`` may contain secrets.
    """
    event = event_of(subject) or _after(_WADM_EVENTS, subject)
    return event if event is not None and event.startswith(_COPIED) else None


def model_list_subject(lattice: str, account: str = "") -> str:
    """Return the request subject for the applications of a lattice in wadm.

    Raises:
        SubjectError: the name of the lattice is invalid in subjects.
    """
    return f"{_of(account)}{_WADM_API}.{_token('lattice', lattice)}.model.list"


def model_put_subject(lattice: str, account: str = "") -> str:
    """Return the request subject to store a version of an application in wadm.

    Raises:
        SubjectError: the name of the lattice is invalid in subjects.
    """
    return f"{_of(account)}{_WADM_API}.{_token('lattice', lattice)}.model.put"


def model_list_key(lattice: str, account: str = "") -> str:
    """Return the key of the list of application names of a lattice in the bucket of wadm."""
    return f"{account}-{lattice}" if account else lattice


def model_subject(lattice: str, verb: str, application: str, account: str = "") -> str:
    """Return the request subject of a verb for an application: get, deploy, undeploy, del, versions, status.

    Raises:
        SubjectError: one of the names is invalid in subjects.
    """
    name = _token("application", application)
    return f"{_of(account)}{_WADM_API}.{_token('lattice', lattice)}.model.{verb}.{name}"


def model_get_subject(lattice: str, application: str, account: str = "") -> str:
    """Return the request subject for the manifest of an application in wadm.

    Raises:
        SubjectError: one of the names is invalid in subjects.
    """
    return model_subject(lattice, "get", application, account)


def status_subject(lattice: str) -> str:
    """Return the subject on which wadm publishes changed statuses of the applications of a lattice.

    Raises:
        SubjectError: the name of the lattice is invalid in subjects.
    """
    return f"{_WADM_STATUS}.{_token('lattice', lattice)}.*"


def status_of(subject: str) -> str | None:
    """Return the application of a status message, None for other messages."""
    return _after(_WADM_STATUS, subject)


def host_ping_subject(lattice: str, prefix: str = CONTROL_PREFIX) -> str:
    """Return the request subject to which every host of a lattice answers with its ID.

    Raises:
        SubjectError: the name of the lattice, or the prefix, is invalid in subjects.
    """
    return f"{_control(lattice, prefix)}.host.ping"


def host_get_subject(lattice: str, host: str, prefix: str = CONTROL_PREFIX) -> str:
    """Return the request subject for the inventory of a host.

    Raises:
        SubjectError: one of the names is invalid in subjects.
    """
    return f"{_control(lattice, prefix)}.host.get.{_token('host', host)}"


def configuration_subject(lattice: str, name: str) -> str:
    """Return the subject of a named configuration in the KV bucket of its lattice.

    Raises:
        SubjectError: the name of the lattice is invalid in subjects.
    """
    return f"$KV.{_CONFIGURATIONS}_{_token('lattice', lattice)}.{name}"


def configuration_ask_subject(lattice: str, name: str, prefix: str) -> str:
    """Return the request subject for a named configuration, answered by a host.

    Raises:
        SubjectError: one of the names is invalid in subjects.
    """
    return f"{_control(lattice, prefix)}.config.get.{_token('configuration', name)}"


def configuration_get_subject(lattice: str) -> str:
    """Return the request subject for named configurations, answered by JetStream.

    Raises:
        SubjectError: the name of the lattice is invalid in subjects.
    """
    return f"$JS.API.STREAM.MSG.GET.KV_{_CONFIGURATIONS}_{_token('lattice', lattice)}"


def secrets_subject(backend: str, operation: str) -> str:
    """Return the subject of requests of hosts to a backend: ``get``, ``server_xkey``, or ``>`` for every operation.

    Raises:
        SubjectError: the name of the backend is invalid in subjects.
    """
    return f"{_SECRETS}.{_SECRETS_VERSION}.{_token('backend', backend)}.{operation}"


def secrets_queue(backend: str) -> str:
    """Return the queue group of the servers of a backend, the same as of secrets-kubernetes.

    Raises:
        SubjectError: the name of the backend is invalid in subjects.
    """
    return f"{_SECRETS}.{_token('backend', backend)}"


def event_of(subject: str) -> str | None:
    """Return the event name in the subject of a host event, None for other subjects.

    In the account of wadm, NATS adds the tenant as a prefix: ``<account>.wasmbus.evt.<lattice>.<event>``.
    """
    found = _after(_EVENTS, subject)
    return found if found is not None else _after(_EVENTS, subject.partition(".")[2])


def _after(prefix: str, subject: str) -> str | None:
    """Return the last token of ``<prefix>.<lattice>.<token>``, None if the subject has another form."""
    tokens = subject.split(".")
    return tokens[-1] if ".".join(tokens[:2]) == prefix and len(tokens) == _EVENT_TOKENS else None


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
