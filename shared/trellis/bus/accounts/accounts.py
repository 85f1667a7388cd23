"""Generates the NATS server configuration for the bus: its account, limits and users.

Pure. In: names of clusters, number of replicas. Out: ``accounts.conf``, ``keys.conf`` with the public keys of the
users, and ``routes.conf`` for a cluster of servers. Called by ``generate`` and by the commands that create the keys.
Invariant: ``accounts.conf`` contains neither keys nor passwords; the server does not start with a user without a key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from trellis.bus.accounts.permissions import User, users
from trellis.bus.streams.streams import DEFAULT_LIMITS

ACCOUNTS_FILE: Final = "accounts.conf"
KEYS_FILE: Final = "keys.conf"
TEMPLATE_FILE: Final = "keys.conf.example"
ROUTES_FILE: Final = "routes.conf"
ACCOUNT: Final = "TRELLIS"

_MIB: Final = 1024 * 1024
_OTHER_BYTES: Final = 16 * _MIB
"""For the bucket of cluster names."""
_STREAMS: Final = len(DEFAULT_LIMITS) + 1
_CONSUMERS: Final = 1000
_ROUTES: Final = "routes"
_NO_KEY: Final = "U" + "X" * 55
_ROUTES_PASSWORD: Final = re.compile(r'^  password: "([^"]+)"$', re.MULTILINE)
_LINE: Final = re.compile(r'^(NKEY_[A-Z0-9_]+): "(U[A-Z2-7]{55})"', re.MULTILINE)


def accounts(clusters: Sequence[str], replicas: int = 1) -> str:
    """Return ``accounts.conf`` for a bus that these clusters share."""
    store = (sum(limits.max_bytes for limits in DEFAULT_LIMITS.values()) + _OTHER_BYTES) * replicas
    named = " ".join(f"--cluster {cluster}" for cluster in clusters)
    head = f"""\
# Users of the bus and their permissions, for clusters: {", ".join(clusters)} (TRELLIS_CLUSTER).
# Written by `trellis bus users DIRECTORY {named}`; do not edit.
# Run:      nats-server --config {ACCOUNTS_FILE} --jetstream --store_dir DIRECTORY
# or add:   include "{ACCOUNTS_FILE}" to the configuration of a server with JetStream.
# {KEYS_FILE} in the same directory holds the public keys of the users; {TEMPLATE_FILE} is its template.
include "{KEYS_FILE}"

"""
    return head + _account(users(clusters), store)


def routes(password: str, hosts: Sequence[str]) -> str:
    """Return ``routes.conf``: the ``cluster`` block's user and routes, which contain its password.

    ``hosts``: ``host:port`` of each server. NATS does not use the user of ``authorization`` for the listed routes, so
    each URL has it.
    """
    urls = "".join(f'  "nats-route://{_ROUTES}:{password}@{host}"\n' for host in hosts)
    return f"""\
# User and routes of the servers of one NATS cluster: include this file in the block `cluster`.
authorization {{
  user: "{_ROUTES}"
  password: "{password}"
  timeout: 5
}}
routes: [
{urls}]
"""


def routes_password(text: str) -> str:
    """Return the password in a ``routes.conf``, "" if there is none."""
    found = _ROUTES_PASSWORD.search(text)
    return found[1] if found else ""


def _account(its_users: Sequence[User], store: int) -> str:
    head = f"""\
accounts {{
  {ACCOUNT} {{
    jetstream {{
      max_memory: {64 * _MIB}
      max_file: {store}
      max_streams: {_STREAMS}
      max_consumers: {_CONSUMERS}
      max_bytes_required: true
    }}
    users: [
"""
    return head + "".join(map(_user, its_users)) + "    ]\n  }\n}\n"


def keys(clusters: Sequence[str], public: Mapping[str, str]) -> str:
    """Return ``keys.conf``: one line per user; ``public`` holds the public keys by name of the user."""
    head = f"""\
# Public keys of the NATS users in {ACCOUNTS_FILE}; they are not secret.
# `trellis bus users DIRECTORY --cluster NAME` generates the keys and this file. `nk -gen user -pubout` generates a key
# too: its first line is the seed, for TRELLIS_NATS_NKEY_FILE, its second the public key for this file.
"""
    lines = [f'{user.variable}: "{public.get(user.name, _NO_KEY)}"  # {user.about}\n' for user in users(clusters)]
    return head + "".join(lines)


def public_keys(text: str) -> dict[str, str]:
    """Return the public keys in a ``keys.conf``, by variable, without the placeholders of the template."""
    return {name: key for name, key in _LINE.findall(text) if key != _NO_KEY}


def _user(user: User) -> str:
    publish = f"allow: {_list(user.publish)}" + (f"\n            deny: {_list(user.deny)}" if user.deny else "")
    return f"""\
      {{ # {user.about}
        nkey: ${user.variable}
        permissions {{
          publish {{
            {publish}
          }}
          subscribe {{
            allow: {_list(user.subscribe)}
          }}
        }}
      }}
"""


def _list(subjects: Sequence[str]) -> str:
    lines = "".join(f'              "{subject}"\n' for subject in subjects)
    return f"[\n{lines}            ]"
