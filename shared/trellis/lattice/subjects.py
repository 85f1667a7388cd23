"""The subjects of a lattice, spelt once.

Pure. In: a lattice's name, a host's id. Out: NATS subjects and back. Called by the rest of ``trellis.lattice``.
Source: wasmCloud's control interface v1 (``<prefix>.v1.<lattice>.<noun>.<verb>``), its events
(``wasmbus.evt.<lattice>.<event>``), wadm 0.21 (``wadm.api.<lattice>.model.<verb>``, ``wadm.evt.<lattice>.<event>``),
the secrets protocol (``wasmcloud.secrets.v1alpha1.<backend>.<operation>``, queue ``wasmcloud.secrets.<backend>``).
Invariant: a name that is not one token never becomes part of a subject: it would be somebody else's.
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
HOST_EVENTS: Final = (HOST_HEARTBEAT, HOST_STARTED, HOST_STOPPED)

_EVENTS: Final = "wasmbus.evt"
_CONFIGURATIONS: Final = "CONFIGDATA"
_WADM_API: Final = "wadm.api"
_WADM_EVENTS: Final = "wadm.evt"
_CONTROL_VERSION: Final = "v1"
_EVENT_TOKENS: Final = 4
"""``wasmbus.evt.<lattice>.<event>``."""
# NATS separates tokens by dots; wildcards, white space and control characters cannot be in one.
_TOKEN = re.compile(r"[^\s.*>\x00-\x1f\x7f]+")
_TOKENS = re.compile(rf"{_TOKEN.pattern}(?:\.{_TOKEN.pattern})*")


STREAM_WADM: Final = "wadm_events"
STREAM_HOSTS: Final = "wasmbus_events"
"""The streams in which wadm keeps the events of all lattices of its NATS, for 70 s."""

STREAM_MODELS: Final = "KV_wadm_manifests"
"""The stream of the bucket in which wadm keeps the applications of all lattices of its NATS."""
MODEL_KEYS: Final = "$KV.wadm_manifests."
"""What the subject of an entry of that bucket begins with; the rest is its key."""
_WADM_STATUS: Final = "wadm.status"
_STATUS_TOKENS: Final = 4
"""``wadm.status.<lattice>.<application>``."""
_COPIED: Final = ("manifest_", "provider_", "component_", "host_started", "host_stopped", "linkdef_", "health_")


_SECRETS: Final = "wasmcloud.secrets"
_SECRETS_VERSION: Final = "v1alpha1"


class SubjectError(ValueError):
    """A name that cannot stand in a NATS subject; the text says which and why, for people."""


def event_subject(lattice: str, event: str) -> str:
    """Return where hosts say an event of a lattice.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return f"{_EVENTS}.{_token('lattice', lattice)}.{event}"


def wadm_events_subject(lattice: str) -> str:
    """Return where wadm says what happens to a lattice's applications: published, unpublished, all of it.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return f"{_WADM_EVENTS}.{_token('lattice', lattice)}.>"


def event_streams(lattice: str) -> dict[str, str]:
    """Return by stream of wadm's what selects a lattice's events in it.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return {STREAM_WADM: wadm_events_subject(lattice), STREAM_HOSTS: event_subject(lattice, ">")}


def copied_event(subject: str) -> str | None:
    """Return the event a message of a lattice is about if it is copied for others, else None.

    Heartbeats are read where they are said, and ``config_*`` may have secrets in it.
    """
    tokens = subject.split(".")
    if ".".join(tokens[:2]) not in {_EVENTS, _WADM_EVENTS} or len(tokens) != _EVENT_TOKENS:
        return None
    return tokens[-1] if tokens[-1].startswith(_COPIED) else None


def model_list_subject(lattice: str) -> str:
    """Return where wadm answers with a lattice's applications.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return f"{_WADM_API}.{_token('lattice', lattice)}.model.list"


def model_put_subject(lattice: str) -> str:
    """Return where wadm takes a version of an application.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return f"{_WADM_API}.{_token('lattice', lattice)}.model.put"


def model_subject(lattice: str, verb: str, application: str) -> str:
    """Return where wadm is asked to do something with an application: get, deploy, undeploy, del, versions, status.

    Raises:
        SubjectError: one of the names cannot stand in a subject.
    """
    return f"{_WADM_API}.{_token('lattice', lattice)}.model.{verb}.{_token('application', application)}"


def model_get_subject(lattice: str, application: str) -> str:
    """Return where wadm answers with an application's manifest.

    Raises:
        SubjectError: one of the names cannot stand in a subject.
    """
    return model_subject(lattice, "get", application)


def status_subject(lattice: str) -> str:
    """Return where wadm says how the applications of a lattice are, each under its name, when that changes.

    Raises:
        SubjectError: the lattice's name cannot stand in a subject.
    """
    return f"{_WADM_STATUS}.{_token('lattice', lattice)}.*"


def status_of(subject: str) -> str | None:
    """Return whose status a message is about, None if it is about nobody's."""
    tokens = subject.split(".")
    return tokens[-1] if ".".join(tokens[:2]) == _WADM_STATUS and len(tokens) == _STATUS_TOKENS else None


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
    """Return the event a lattice's message is about, None if it is about none.

    Hosts of a multi-tenant NATS put an account before the subject (``<account>.wasmbus.evt.<lattice>.<event>``).
    """
    tokens = subject.split(".")
    at = 1 if tokens[1:3] == _EVENTS.split(".") else 0
    return tokens[at + 3] if tokens[at : at + 2] == _EVENTS.split(".") and len(tokens) == at + 4 else None


def _control(lattice: str, prefix: str) -> str:
    if not _TOKENS.fullmatch(prefix):
        raise SubjectError(f"the control topic prefix {prefix!r} is no NATS subject: names separated by dots")
    return f"{prefix}.{_CONTROL_VERSION}.{_token('lattice', lattice)}"


def _token(what: str, name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise SubjectError(f"the {what} {name!r} cannot be part of a NATS subject: no dots, spaces, '*' or '>'")
    return name
