"""Reads the Secrets and ConfigMaps that a host group refers to: the inputs of its children, or missing objects.

Pure: raw objects in, :class:`Inputs` and problems out. Called by ``gather``.
Invariants: no message contains a value of a Secret; the checksum reveals no content (it is salted with the group's name
and short), and is the same for an equal group that is re-created, so that its hosts keep running.
Source: the docker config format, ``{"auths": {<server>: {"username", "password", "auth"}}}``; ``auth`` is
base64 of ``user:password``.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from host_manager.domain.environment import SEED_KEY
from host_manager.domain.group import Group, Inputs, Registry
from host_manager.domain.template import CREDENTIALS_KEY
from trellis import names

Manifest = Mapping[str, Any]
Source = tuple[str, str]
"""Kind and name of an object that a host group refers to: ``("Secret", "nats")``."""
Versions = Mapping[Source, tuple[str, str]]
"""``uid`` and ``resourceVersion`` of each object that a host group refers to; empty texts if it does not exist."""

DOCKER_CONFIG: Final = ".dockerconfigjson"
_CERTIFICATE: Final = ".crt"
_NO_AUTHORITY: Final = re.compile(r"[/\s]")
"""Hosts look credentials up by the part of a reference before the first slash, with its port."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with the children of a host group. ``blocks``: no child is written."""

    reason: str
    message: str
    blocks: bool = True


def sources_of(group: Group) -> list[Source]:
    """Return the objects that a host group refers to, without duplicates, in the order of its fields."""
    spec = group.spec
    found: list[Source] = [("Secret", name) for name in (spec.secret_name, spec.registry_credentials_secret) if name]
    for authority in _authorities(group):
        found += [("Secret", authority.secret.secret_name)] if authority.secret.secret_name else []
        found += [("ConfigMap", authority.config_map.name)] if authority.config_map.name else []
    if spec.leaf_tls and spec.leaf_tls.secret_name:
        found.append(("Secret", spec.leaf_tls.secret_name))
    return list(dict.fromkeys(found))


def versions_of(read: Mapping[Source, Manifest | None]) -> Versions:
    """Return the versions of the objects that a host group refers to; ``read``: None for a missing one."""
    return {
        source: ("", "") if found is None else (found["metadata"]["uid"], found["metadata"]["resourceVersion"])
        for source, found in read.items()
    }


def read_inputs(group: Group, read: Mapping[Source, Manifest | None], conf: str) -> tuple[Inputs, tuple[Problem, ...]]:
    """Return the inputs of the children, and the problems with them.

    ``read``: objects by source, None for a missing one. ``conf``: the configuration of the leaf, part of the checksum.
    """
    spec = group.spec
    problems = [*_unnamed(group), *_missing(group, read)]
    nats = _data(read, ("Secret", spec.secret_name or ""))
    registries, refusal = _registries(read, spec.registry_credentials_secret)
    problems += [refusal] if refusal else []
    credentials = _is_text(nats.get(CREDENTIALS_KEY))
    found = read.get(("Secret", spec.secret_name or "")) is not None
    if found and not credentials and SEED_KEY not in nats:
        message = f"Secret {group.namespace}/{spec.secret_name} has no key {CREDENTIALS_KEY}: hosts connect without it"
        problems.append(Problem("SecretKeyMissing", message, blocks=False))
    tls = _data(read, ("Secret", (spec.leaf_tls.secret_name if spec.leaf_tls else None) or ""))
    authorities = tuple(
        (
            _certificates(read, ("Secret", authority.secret.secret_name)),
            _certificates(read, ("ConfigMap", authority.config_map.name)),
        )
        for authority in _authorities(group)
    )
    contents = {f"{kind}/{name}": _data(read, (kind, name)) for kind, name in sources_of(group)}
    text = orjson.dumps([conf, contents], option=orjson.OPT_SORT_KEYS).decode()
    inputs = Inputs(
        credentials=credentials,
        seed=SEED_KEY in nats,
        authorities=authorities,
        registries=registries,
        tls_keys=tuple(sorted(tls)),
        checksum=names.short_hash(group.namespace, group.name, text),
        former_checksum=names.short_hash(group.uid, text),
    )
    return inputs, tuple(problems)


def keep_checksum(inputs: Inputs, workload: Manifest | None, uid: str) -> Inputs:
    """Return the inputs with the checksum of the current pods if that has the former salt, the group's uid.

    ``workload``: the current one. Pods of revision 1 have no checksum; it is in the mark of their workload.
    """
    if workload is None:
        return inputs
    template = workload["spec"]["template"].get("metadata") or {}
    has = (template.get("annotations") or {}).get(names.ANNOTATION_CHECKSUM)
    own = any(
        owner_reference.get("uid") == uid for owner_reference in workload["metadata"].get("ownerReferences") or ()
    )
    if has == inputs.former_checksum or (has is None and own):
        return replace(inputs, checksum=inputs.former_checksum)
    return inputs


def _authorities(group: Group) -> Iterable[Any]:
    certificates = group.spec.certificates
    return (certificates.authorities if certificates else None) or ()


def _unnamed(group: Group) -> list[Problem]:
    fields = {
        "secretName": group.spec.secret_name,
        "registryCredentialsSecret": group.spec.registry_credentials_secret,
    }
    return [
        Problem("SecretMissing", f"spec.{field} is empty: name a Secret there, or leave the field out")
        for field, value in fields.items()
        if value == ""
    ]


def _missing(group: Group, read: Mapping[Source, Manifest | None]) -> list[Problem]:
    return [
        Problem(f"{kind}Missing", f"{kind} {group.namespace}/{name} is missing: create it, or name another in the spec")
        for (kind, name), found in read.items()
        if found is None
    ]


def _data(read: Mapping[Source, Manifest | None], source: Source) -> dict[str, str]:
    return dict((read.get(source) or {}).get("data") or {})


def _certificates(read: Mapping[Source, Manifest | None], source: Source) -> tuple[str, ...]:
    return tuple(sorted(key for key in _data(read, source) if key.endswith(_CERTIFICATE)))


def _decoded(value: str | None) -> str | None:
    try:
        return base64.b64decode(value or "", validate=True).decode() if value else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _is_text(value: str | None) -> bool:
    return value is not None and (value == "" or _decoded(value) is not None)


def _registries(
    read: Mapping[Source, Manifest | None], name: str | None
) -> tuple[tuple[Registry, ...], Problem | None]:
    """Return the registries in a Secret, ordered by name, or the problem with it."""
    found = read.get(("Secret", name or ""))
    if not name or found is None:
        return (), None
    data = _data(read, ("Secret", name))
    if DOCKER_CONFIG not in data:
        message = f"Secret {name} has no key {DOCKER_CONFIG}: make it with `kubectl create secret docker-registry`"
        return (), Problem("SecretKeyMissing", message)
    try:
        auths = orjson.loads(_decoded(data[DOCKER_CONFIG]) or "")["auths"]
        servers = sorted(auths, key=lambda server: (bool(_NO_AUTHORITY.search(server)), server))
        registries = tuple(_registry(server, auths[server]) for server in servers)
    except (ValueError, KeyError, TypeError, AttributeError):
        registries = ()
    if not registries:
        message = f"Secret {name}: {DOCKER_CONFIG} names no registry with user and password"
        return (), Problem("RegistrySecretInvalid", message)
    if len(registries) > 1:
        used, first = registries[0].server, registries[1].server
        more = f" and {len(registries) - 2} more" if len(registries) > 2 else ""
        message = (
            f"a host takes one registry, {used}, so {first}{more} of Secret {name} is not used: give each its own "
            "group, or set configServiceEnabled"
        )
        return registries, Problem("RegistriesLeftOut", message, blocks=False)
    if _NO_AUTHORITY.search(registries[0].server):
        message = (
            f"Secret {name}: {registries[0].server!r} is not a registry name as in image references: "
            "create the Secret with --docker-server=<name>, without https:// and path"
        )
        return registries, Problem("RegistryNotNamed", message, blocks=False)
    return registries, None


def _registry(server: str, entry: Mapping[str, str]) -> Registry:
    user, password = entry.get("username"), entry.get("password")
    if user is None or password is None:
        user, _, password = (_decoded(entry["auth"]) or "").partition(":")
    if not (user and isinstance(user, str) and isinstance(password, str)):
        raise ValueError(server)
    return Registry(server, user, password)
