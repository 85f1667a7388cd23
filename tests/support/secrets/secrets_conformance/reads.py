"""Cases of policies, of what may be read as whom, and of values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from support.secrets.secrets_conformance.cases import Case, granted, granted_bytes, granted_or_refused, refused
from support.secrets.secrets_conformance.world import (
    MUTE,
    NOT_TEXT,
    READER,
    TOO_LONG,
    USER,
    VALUES,
    Ask,
    World,
    policy_of,
)

_BAD: Final = refused("PolicyError")
_ACCOUNTS: Final = "`impersonate` names a ServiceAccount, unless users are listed; to the peer it names any user"
_GRANTS: Final = "a lattice may read where it was given something; the peer reads wherever its own account may"
_TYPE: Final = "properties.secret.wasmcloud.dev/v1alpha1"


def _properties(value: object) -> Callable[[World], str]:
    return lambda _: json.dumps({"type": _TYPE, "properties": value})


def _policies() -> list[Case]:
    bad: Mapping[str, Callable[[World], str]] = {
        "empty": lambda _: "",
        "words": lambda _: "no policy",
        "null": lambda _: "null",
        "a list": lambda _: "[]",
        "a number": lambda _: "7",
        "a string": lambda world: json.dumps(policy_of(world.namespace, READER)),
        "an empty object": lambda _: "{}",
        "flat": lambda world: json.dumps({"namespace": world.namespace, "impersonate": READER}),
        "of a type alone": lambda _: json.dumps({"type": _TYPE}),
        "followed by something": lambda world: policy_of(world.namespace, READER) + "x",
        "cut off": lambda world: policy_of(world.namespace, READER)[:-1],
        "of properties that are a list": _properties([]),
        "of properties that are a string": _properties("x"),
        "of properties that are a number": _properties(7),
        "of properties that are a truth": _properties(True),
        "of a namespace that is a number": _properties({"namespace": 7}),
        "of a namespace that is a list": _properties({"namespace": ["default"]}),
        "of a namespace that is an object": _properties({"namespace": {}}),
        "of an account that is a number": _properties({"impersonate": 7}),
        "of an account that is a list": _properties({"impersonate": [READER]}),
        "of an account that is a truth": _properties({"impersonate": True}),
    }
    good: Mapping[str, Callable[[World], str]] = {
        "of the protocol's form": lambda world: policy_of(world.namespace, READER),
        "of no type": lambda world: json.dumps(
            {"properties": json.loads(policy_of(world.namespace, READER))["properties"]}
        ),
        "of another type": lambda world: policy_of(world.namespace, READER).replace(_TYPE, "other/v9"),
        "with more properties": lambda world: policy_of(world.namespace, READER, backend="kube", more={"a": 1}),
        "with more beside": lambda world: json.dumps({**json.loads(policy_of(world.namespace, READER)), "more": 1}),
        "with spaces": lambda world: json.dumps(json.loads(policy_of(world.namespace, READER)), indent=2),
        "of no account": lambda world: policy_of(world.namespace, None),
        "of an account that is null": lambda world: policy_of(world.namespace, None, impersonate=None),
        "of an account that is empty": lambda world: policy_of(world.namespace, ""),
        "of no namespace": lambda _: policy_of(None, READER),
        "of a namespace that is null": lambda _: policy_of(None, READER, namespace=None),
        "of the namespace default": lambda _: policy_of("default", READER),
        "of no properties": _properties({}),
        "of properties that are null": _properties(None),
    }
    found = [Case(f"the policy is {what}", Ask(policy=policy), _BAD) for what, policy in bad.items()]
    found += [Case(f"the policy is {what}", Ask(policy=policy), granted()) for what, policy in good.items()]
    number = Ask(policy=lambda world: policy_of(world.namespace, READER).replace(f'"{_TYPE}"', "7"))
    found.append(Case("the policy is of a type that is a number", number, granted_or_refused("PolicyError")))
    return found


def _accounts() -> list[Case]:
    """Return the cases of accounts that must not read: refused by the API server, or before."""
    forbidden: Mapping[str, Callable[[World], str]] = {
        "an account without rights": lambda world: policy_of(world.namespace, MUTE),
        "an account that is not there": lambda world: policy_of(world.namespace, "nobody"),
    }
    found = [
        Case(f"it is read as {who}", Ask(policy=policy), refused("UpstreamError")) for who, policy in forbidden.items()
    ]
    strange: Mapping[str, str] = {
        "a user with a space": "some body",
        "a user with a line break": f"{READER}\r\nImpersonate-Group: system:masters",
        "a user with foreign letters": "密码",
        "a user with a slash": f"../{READER}",
        "a user of many letters": "x" * 5_000,
        "nobody who was asked in": "system:anonymous",
    }
    found += [
        Case(f"it is read as {who}", Ask(policy=lambda world, who=name: policy_of(world.namespace, who)), refused())
        for who, name in strange.items()
    ]
    found += [
        Case("it is read as an account by its full name", Ask(policy=_as_account_of("namespace")), granted()),
        Case("it is read as another namespace's account", Ask(policy=_as_account_of("outside")), refused()),
        Case("it is read as a user who is no account", Ask(policy=_as_user), refused(), _ACCOUNTS),
    ]
    nobody = Ask(policy=lambda world: policy_of(world.outside, MUTE))
    found.append(Case("it is read where nobody was let in", nobody, refused("PolicyError"), _GRANTS))
    own = Ask(policy=lambda world: policy_of(world.outside, None))
    found.append(Case("it is read where our own account may", own, refused("PolicyError"), _GRANTS))
    places: Mapping[str, Callable[[World], str]] = {
        "where no namespace is": lambda _: "no-such-namespace",
        "in a namespace that is empty": lambda _: "",
        "in a namespace with a slash": lambda world: f"{world.namespace}/secrets/{world.name}?x=",
        "in a namespace above": lambda world: f"../namespaces/{world.namespace}",
        "in a namespace in capitals": lambda world: world.namespace.upper(),
        "in a namespace with a space": lambda world: f"{world.namespace} ",
        "in a namespace with a line break": lambda world: f"{world.namespace}\n",
        "in a namespace of many letters": lambda _: "x" * 5_000,
    }
    found += [
        Case(f"it is read {where}", Ask(policy=lambda world, of=of: policy_of(of(world), READER)), refused())
        for where, of in places.items()
    ]
    return found


def _as_user(world: World) -> str:
    return policy_of(world.namespace, USER)


def _as_account_of(where: str) -> Callable[[World], str]:
    def policy(world: World) -> str:
        return policy_of(world.namespace, f"system:serviceaccount:{getattr(world, where)}:{READER}")

    return policy


def _names() -> list[Case]:
    names: Mapping[str, Callable[[World], str]] = {
        "above": lambda world: f"../secrets/{world.name}",
        "with a query": lambda world: f"{world.name}?x=y",
        "with a fragment": lambda world: f"{world.name}#x",
        "with a slash at its end": lambda world: f"{world.name}/",
        "with a dot at its end": lambda world: f"{world.name}/.",
        "with a percent sign": lambda world: world.name[:-1] + "%" + f"{ord(world.name[-1]):02x}",
        "with a space": lambda world: f"{world.name} ",
        "with a line break": lambda world: f"{world.name}\n",
        "in capitals": lambda world: world.name.upper(),
        "with nothing in it": lambda world: f"{world.name}\x00",
        "with foreign letters": lambda _: "密码",
        "with half a letter": lambda _: "\ud800",
        "of many letters": lambda _: "x" * 5_000,
        "of dots": lambda _: "..",
        "of a dot": lambda _: ".",
    }
    fields = {
        "with a slash": "a/b",
        "with a dot": "data.text",
        "in capitals": "TEXT",
        "of many letters": "x" * 5_000,
        "with foreign letters": "密码",
        "with nothing in it": "text\x00",
    }
    found = [Case(f"a name {how}", Ask(name=name), refused()) for how, name in names.items()]
    missing = refused("SecretNotFound")
    found += [Case(f"an entry {how}", Ask(field=name), missing) for how, name in fields.items()]
    return [
        *found,
        Case("an entry with half a letter", Ask(field="\ud800"), refused()),
        Case("an entry that is not there", Ask(field="none"), missing),
        Case("a Secret that is not there", Ask(name=lambda _: "none"), refused("UpstreamError")),
        Case(
            "a Secret that is not there, as an account without rights",
            Ask(name=lambda _: "none", policy=lambda world: policy_of(world.namespace, MUTE)),
            refused("UpstreamError"),
        ),
        Case("a value too long for a message", Ask(name=lambda world: f"{world.name}-long", field=TOO_LONG), refused()),
    ]


def _values() -> list[Case]:
    found = [Case(f"the value {name} comes as text", Ask(field=name), granted(text)) for name, text in VALUES.items()]
    found += [
        Case(f"the value {name} comes as bytes", Ask(field=name), granted_bytes(data))
        for name, data in NOT_TEXT.items()
    ]
    odd: Mapping[str, Any] = {
        "of many letters": "x" * 5_000,
        "with letters of all kinds": '密码 "\\ \x01',
        "a number": "7",
    }
    found += [Case(f"for an application {how}", Ask(text=_named(name)), granted()) for how, name in odd.items()]
    return found


def _named(name: str) -> Callable[[dict[str, Any]], str]:
    def text(request: dict[str, Any]) -> str:
        request["context"]["application"]["name"] = name
        return json.dumps(request)

    return text


READS: Final = (*_policies(), *_accounts(), *_names(), *_values())
