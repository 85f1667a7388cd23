"""Text of users in settings, annotations and manifests: durations, counts, quantities, selectors, addresses."""

from __future__ import annotations

import ipaddress
import json
import os
import random
import re
from decimal import Decimal
from typing import Any
from unittest import mock

from pydantic import ValidationError

from application_manager.settings import Settings as ApplicationSettings
from controller_host.domain.views import parse_bytes
from controller_host.domain.watch_specs import specs_of
from controller_host.settings import Settings as ControllerSettings
from fuzz.target import Target, tried
from node_installer.spans import Tracer
from provisioner.settings import Settings as ProvisionerSettings
from support.suite.mutations import text, value
from trellis.config.durations import parse_seconds
from trellis.config.errors import SettingsError
from trellis.config.settings import load
from trellis.crds.wasm_controllers import Watch
from trellis.installer_api.redaction import redact_url
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.registries.domain.addresses import forbidden, is_address
from trellis.telemetry.tracing import trace_from
from trellis_dev.fakes.selectors import _all_hold

_DURATIONS = ("30", "30s", "5m", "1h30m", "500ms", "1d", "1.5h", "0", "1s1s", "30 s", "-1s", "1e3", "1h30", ".5s")
_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
_DIGITS = frozenset("0123456789")


def _number(rng: random.Random) -> tuple[str, Any]:
    kind = rng.choice(["seconds", "count", "bytes"])
    good = {
        "seconds": _DURATIONS, "count": ("5", "10%", "0", "0%", "101%", "1%", " 7 ", "2147483648"),
        "bytes": ("64Mi", "1.5G", "0", "1Ki", "12", "1.0000000001k", "5M", "1e3", "1Ti", "-1"),
    }[kind]  # fmt: skip
    return kind, text(rng, good) if rng.random() < 0.85 else value(rng)


def _scan(written: str, units: list[str]) -> list[tuple[Decimal, str]] | None:
    """Numbers and units one after another, without regular expressions."""
    found = []
    at = 0
    while at < len(written):
        begin = at
        while at < len(written) and (written[at] in _DIGITS or (written[at] == "." and "." not in written[begin:at])):
            at += 1
        number = written[begin:at]
        if not number or number[0] == "." or number[-1] == ".":
            return None
        unit = next((item for item in sorted(units, key=len, reverse=True) if written.startswith(item, at)), "")
        at += len(unit)
        found.append((Decimal(number), unit))
    return found or None


def _judge_number(case: tuple[str, Any]) -> str:
    kind, written = case
    outcome, found = tried(lambda: _NUMBERS[kind](written), ValueError)
    if not isinstance(written, str):
        assert outcome == "ValueError" or (isinstance(written, int | float) and not isinstance(written, bool))
        return f"{kind} {outcome}"
    stripped = written.strip() if kind != "bytes" else written
    wanted: Decimal | str | None = None
    if kind == "count":
        digits = stripped.removesuffix("%")
        if digits and _DIGITS.issuperset(digits) and len(digits) < 4000:
            most = 100 if stripped.endswith("%") else 2**31 - 1
            wanted = (
                (f"{int(digits)}%" if stripped.endswith("%") else f"{int(digits)}")
                if 1 <= int(digits) <= most
                else None
            )
        found = str(found) if outcome == "accepted" else found
    else:
        parts = _scan(stripped, [*_UNITS] if kind == "seconds" else ["Ki", "Mi", "Gi", "k", "M", "G"])
        wanted = _sum(parts, kind)
    assert (outcome == "accepted") == (wanted is not None), (found, wanted)
    if kind == "seconds" and wanted is not None:
        assert abs(Decimal(found) - Decimal(wanted)) <= Decimal(wanted) / 10**9 + Decimal("1e-9")
    elif wanted is not None:
        assert found == wanted
    return f"{kind} {outcome}"


def _sum(parts: list[tuple[Decimal, str]] | None, kind: str) -> Decimal | None:
    if parts is None:
        return None
    if kind == "bytes":
        units = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
        return Decimal(int(parts[0][0] * units[parts[0][1]])) if len(parts) == 1 else None
    if len(parts) > 1 and not all(unit for _, unit in parts):
        return None
    total = sum((number * _UNITS.get(unit, 1) for number, unit in parts), Decimal())
    return total if total < Decimal("1.7e308") else None


_NUMBERS = {"seconds": parse_seconds, "count": CountOrPercent.parse, "bytes": parse_bytes}

NUMBER = Target(
    "durations-counts-quantities",
    "durations, numbers or shares of nodes, quantities of memory",
    "the number of a scanner without regular expressions; all other texts are refused",
    _number,
    _judge_number,
    frozenset(f"{kind} {item}" for kind in _NUMBERS for item in ("accepted", "ValueError")),
)


_ADDRESSES = (
    "127.0.0.1", "10.1.2.3", "8.8.8.8", "169.254.169.254", "::1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1",
    "fe80::1%eth0",
    "2002:a00:1::", "2001:db8::1", "fd00::1", "224.0.0.1", "0.0.0.0", "2606:4700::1111", "100.64.0.1", "1.1.1.1",
)  # fmt: skip


def _host(rng: random.Random) -> tuple[str, list[str]]:
    allowed = rng.sample(["10.0.0.0/8", "fd00::/8", "127.0.0.0/8", "0.0.0.0/0"], rng.choice([0, 0, 1, 2]))
    if rng.random() < 0.3:
        version = rng.choice([4, 6])
        raw = rng.randbytes(4 if version == 4 else 16)
        if version == 6 and rng.random() < 0.5:
            prefix = rng.choice([bytes(10) + b"\xff\xff", b"\0\x64\xff\x9b" + bytes(8), b"\x20\x02"])
            raw = (prefix + raw)[:16]
        return str(ipaddress.ip_address(raw)), allowed
    return text(rng, _ADDRESSES), allowed


def _judge_host(case: tuple[str, list[str]]) -> str:
    written, allowed = case
    if not is_address(written):
        assert tried(lambda: forbidden(written, []), ValueError)[0] != "accepted"
        return "no address"
    networks = [ipaddress.ip_network(item) for item in allowed]
    reason = forbidden(written, networks)
    address = ipaddress.ip_address(written.partition("%")[0])
    raw = address.packed
    if len(raw) == 16:  # what an address of IPv4 is hidden in, by its bytes
        prefixes = {bytes(10) + b"\xff\xff": 12, b"\0\x64\xff\x9b" + bytes(8): 12, b"\x20\x02": 2}
        for prefix, at in prefixes.items():
            if raw.startswith(prefix):
                raw = raw[at : at + 4]
                break
    if raw.startswith(b"\x20\x01\0\0"):  # Teredo has the client's last, each bit turned round
        raw = bytes(255 - byte for byte in raw[12:])
    meant = ipaddress.ip_address(raw)
    inside = any(meant.version == network.version and meant in network for network in networks)
    local = meant.is_private or meant.is_loopback or meant.is_link_local or meant.is_multicast or meant.is_unspecified
    if inside:
        assert not reason
    elif local:
        assert reason, written
    return "forbidden" if reason else "allowed"


HOST = Target(
    "addresses-of-modules",
    "addresses of controller modules",
    "no non-public IPv4 address is accepted, also embedded in any IPv6 address",
    _host,
    _judge_host,
    frozenset({"no address", "forbidden", "allowed"}),
    share=6,
)

_KEYS = ("app", "zone", "trellis.dev/x")


def _selector(rng: random.Random) -> tuple[dict[str, Any], dict[str, str], str]:
    expressions = [
        {"key": rng.choice(_KEYS), "operator": operator,
         **({"values": rng.sample(["a", "b", "c"], rng.randrange(1, 3))} if operator in ("In", "NotIn") else {})}
        for operator in rng.choices(["In", "NotIn", "Exists", "DoesNotExist"], k=rng.randrange(3))
    ]  # fmt: skip
    equal = {key: rng.choice(["a", "b"]) for key in _KEYS if rng.random() < 0.3}
    watch: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap"}
    if rng.random() < 0.8:
        watch["labelSelector"] = {"matchLabels": equal, "matchExpressions": expressions}
    if rng.random() < 0.5:
        watch["namespaces"] = rng.choice([["a"], ["*"], ["a", "b"]])
    labels = {key: rng.choice(["a", "b", "d"]) for key in _KEYS if rng.random() < 0.6}
    return watch, labels, rng.choice(["a", "b", "home", ""])


def _judge_selector(case: tuple[dict[str, Any], dict[str, str], str]) -> str:
    written, labels, namespace = case
    outcome, watch = tried(lambda: Watch.model_validate(written), ValidationError)
    if outcome != "accepted":
        return outcome
    (spec,) = specs_of([watch, watch], "home")
    selector = written.get("labelSelector", {})
    terms = [f"{key}={item}" for key, item in selector.get("matchLabels", {}).items()]
    for term in selector.get("matchExpressions", []):
        key, values = term["key"], ",".join(term.get("values", []))
        forms = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        terms.append(forms[term["operator"]])
    there = not namespace or "*" in written.get("namespaces", []) or namespace in written.get("namespaces", ["home"])
    wanted = there and _all_hold(",".join(terms), labels)
    assert spec.means(namespace, labels) == wanted
    return "meant" if wanted else "not meant"


SELECTOR = Target(
    "label-selectors",
    "label selectors and namespaces of the watches of controllers",
    "the selection of another implementation of the text form in Kubernetes",
    _selector,
    _judge_selector,
    frozenset({"meant", "not meant"}),
    share=6,
)

_SECRET = "hUnTeR2"
_WHERE = ("nats://", "http://", "tls://", "oci://")


def _secretive(rng: random.Random) -> tuple[str, str]:
    password = rng.choice(
        [_SECRET, f"{_SECRET}/x", f"a@{_SECRET}", f"{_SECRET}:1", f"é{_SECRET}", f"{_SECRET}?q", f"#{_SECRET}"]
    )
    user = rng.choice(["user", "u.v", "", "u-1"])
    url = f"{rng.choice(_WHERE)}{user}:{password}@{rng.choice(['host:4222', '[::1]:80', 'h/p?x=1', 'a.b'])}"
    before = rng.choice(["", "cannot connect to ", 'x="', "nats://plain:4222,", "http://h:80/x@y, ", "a@b "])
    after = rng.choice(["", ": refused", ",nats://other:4222", '"', " and a@b", ", tls://z:1@w"])
    return before + url + after, text(rng, [before, after, "mail me@x.org: at 10:30"])


def _judge_secretive(case: tuple[str, str]) -> str:
    expected, other = case
    shown = redact_url(expected)
    assert _SECRET not in shown, shown
    assert redact_url(shown) == shown
    if "://" not in other:
        assert redact_url(other) == other
    redact_url(other * 40)
    return "hidden"


REDACTION = Target(
    "redaction",
    "texts with addresses, before they are shown",
    "no password of an address remains; text without addresses is unchanged",
    _secretive,
    _judge_secretive,
    frozenset({"hidden"}),
    share=6,
)

_TRACES = (
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-" + "0" * 32 + "-b7ad6b7169203331-01",
    "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-00",
    "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
    "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
)  # fmt: skip
_STATES = ("a=b", "a=b,c=d", "vendor@x=1", "a=b, c=d", "A=b", "a=b=c", "a=", "é=1", "a=b\nc: d")
_TRACE_FORM = re.compile("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def _trace(rng: random.Random) -> tuple[str, str | None]:
    return text(rng, _TRACES), rng.choice([None, text(rng, _STATES)])


def _judge_trace(case: tuple[str, str | None]) -> str:
    parent, state = case
    found = trace_from(parent, state)
    ids = Tracer(None, parent)._ids()
    Tracer(None, parent)._is_sampled()
    if found is None:
        assert not _TRACE_FORM.fullmatch(parent)
        return "none"
    assert _TRACE_FORM.fullmatch(found.traceparent)
    assert found.trace_id in parent
    assert found.tracestate is None or (found.tracestate.isprintable() and found.tracestate.isascii())
    assert trace_from(found.traceparent, found.tracestate) == found
    if parent.count("-") == 3 and parent == parent.strip():
        assert ids[0] == found.trace_id
    return "a trace"


TRACE = Target(
    "trace-contexts",
    "`traceparent` and `tracestate` from any sender",
    "as specified by W3C; forwarded values are printable ASCII; the installer reads the same values",
    _trace,
    _judge_trace,
    frozenset({"none", "a trace"}),
    share=6,
)

_SETTINGS = (ProvisionerSettings, ControllerSettings, ApplicationSettings)
_GOOD = (
    "30s", "5", "10%", "true", "false", "info", "nats://a:4222", "http://h:4318", "a,b", "team-a", "default", "x/y",
    f"nats://user:{_SECRET}@h:4222", f"http://u:{_SECRET}@h:80", f"nats://u:{_SECRET}@h:port", "1.5", "64Mi", "/tmp",
)  # fmt: skip


def _environment(rng: random.Random) -> tuple[Any, dict[str, str]]:
    kind = rng.choice(_SETTINGS)
    fields = rng.sample(
        sorted(set(kind.model_fields) - {"nats_nkey_file", "nats_credentials_file"}), rng.randrange(1, 5)
    )
    written = {f"TRELLIS_{name.upper()}": text(rng, _GOOD) for name in fields}
    safe = {name: item.replace("\0", "").encode(errors="replace").decode() for name, item in written.items()}
    return kind, safe


def _judge_environment(case: tuple[Any, dict[str, str]]) -> str:
    kind, written = case
    with mock.patch.dict(os.environ, written, clear=True):
        outcome, found = tried(lambda: load(kind), SettingsError)
    if outcome == "accepted":
        json.dumps(found.model_dump(mode="json"))
        return outcome
    # What somebody garbled is no address any more, and may be shown.
    assert _SECRET not in str(found) or any(_SECRET in item and item not in _GOOD for item in written.values()), found
    assert any(name in str(found) for name in written), found
    return outcome


SETTINGS = Target(
    "settings",
    "settings of services in their environment",
    "settings, or an error that names the variable and contains no password",
    _environment,
    _judge_environment,
    frozenset({"accepted", "SettingsError"}),
    share=3,
)

TARGETS = (NUMBER, HOST, SELECTOR, REDACTION, TRACE, SETTINGS)
