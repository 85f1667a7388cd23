"""Carry out the steps of users on Secrets, permissions and grants, with a host that requests all of them all the time.

In: steps of the part ``secrets``. Out: calls to the API server, requests over the lattice's NATS; sentences about
answers that must not have been, and about what is not answered as it has to be. Called by ``world``. The host has a
group in one namespace; the Secrets are in another one, so that nothing is given without a grant.
"""

from __future__ import annotations

import asyncio
import base64
import http
import itertools
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final

import nats.errors
from nacl.exceptions import CryptoError

from chaos.bus_servers import quiet
from chaos.model import Expected
from chaos.namespaces import Namespaces
from chaos.retrying_requests import RetryingRequests
from chaos.secret_witness import Answer, Witness
from chaos.secret_work import ACCOUNTS, PART, SECRETS, Act
from chaos.steps import Step
from support.lattices.host_groups import MINIMAL
from support.secrets.secrets_host import Host, value
from support.suite import planted
from support.suite.tcp_proxy import TcpProxy
from trellis.kube.resources import HOST_CONFIGS, ROLE_BINDINGS, ROLES, SECRET_GRANTS
from trellis.kube.resources import SECRETS as SECRETS_KIND

Manifest = dict[str, Any]
UNKNOWN_ACCOUNT: Final = "nobody"
"""An account without any permission or grant."""
ENTRY: Final = "password"
_HELD: Final = ("apis/k8s.wasmcloud.dev/v1alpha1/wasmcloudhostconfigs",)
_ASK_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.15


class SecretSide:
    """``proxy``: the way of all services to the lattice's NATS; the host asks past it. ``wrong_answers``: so far."""

    def __init__(self, requests: RetryingRequests, url: str, proxy: TcpProxy, run_id: str) -> None:
        self._requests = requests
        self._proxy = proxy
        self._lattice = f"{run_id}-secrets"
        self._home, self._vault = f"{run_id}-hosts", f"{run_id}-vault"
        self._namespaces = Namespaces(requests, (self._home, self._vault), _HELD)
        options = {"error_cb": quiet, "reconnect_time_wait": 0.2, "ping_interval": 2, "max_outstanding_pings": 2}
        self._host = Host(url, options=options)
        self._witness = Witness()
        self._began = time.monotonic()
        self._asker: asyncio.Task[None] | None = None
        self._asks = True
        self.deleted: set[str] = set()
        self.wrong_answers: list[str] = []
        self.answers = 0

    async def begin(self) -> None:
        """Make the namespaces and the group of the host; from now on the host asks."""
        await self._namespaces.make()
        spec = MINIMAL | {"lattice": self._lattice, "hostReplicas": 1}
        spec |= {"natsAddress": "nats://127.0.0.1", "natsClientPort": self._proxy.port}
        kind = {"apiVersion": HOST_CONFIGS.api_version, "kind": HOST_CONFIGS.kind}
        group = kind | {"metadata": {"name": "asking"}, "spec": spec}
        await self._requests.accepted("POST", HOST_CONFIGS.path(self._home), group)
        await self._host.__aenter__()
        self._asker = asyncio.create_task(self._request_all_the_time(), name="secret requests")

    async def _request_all_the_time(self) -> None:
        for who, secret in itertools.cycle(itertools.product((*ACCOUNTS, UNKNOWN_ACCOUNT), SECRETS)):
            if not self._asks:
                return
            await self._ask(who, secret)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _ask(self, who: str, secret: str) -> Any:
        """Ask once; return the value, the error's name, or None without an answer. Errors are kept."""
        requested = self._now()
        try:
            if not self._host.server:
                await self._host.ask_key(_ASK_SECONDS)
            policy = {"namespace": self._vault, "impersonate": who}
            answer = await self._host.get(secret, ENTRY, seconds=_ASK_SECONDS, **policy)
        except (nats.errors.Error, OSError):
            return None
        except CryptoError:
            self._host.server = ""  # sealed for a key that there is no more
            return None
        answer_value = value(answer)
        if "secret" not in answer:
            return next(iter(answer_value)) if isinstance(answer_value, dict) else answer_value
        self.answers += 1
        version = str(answer_value).removeprefix(f"{planted.VALUE}-")
        self.wrong_answers += self._witness.wrong(Answer(who, secret, version, requested, self._now()))
        return version

    def _now(self) -> float:
        return time.monotonic() - self._began

    def act(self, step: Step) -> Awaitable[None]:
        """Return what carries a step out."""
        if step.act == Act.DELETE:
            self.deleted.add(step.on)
        return self._do(step)

    async def _do(self, step: Step) -> None:
        self._witness.requested_for(step, self._now())
        match Act(step.act):
            case Act.SET:
                data = {ENTRY: base64.b64encode(f"{planted.VALUE}-{step.value}".encode()).decode()}
                await self._put(SECRETS_KIND, {"metadata": {"name": step.on}, "data": data})
            case Act.DELETE:
                await self._requests.deleted(SECRETS_KIND.path(self._vault, step.on))
            case Act.ALLOW:
                await self._allow(step.on, step.value)
            case Act.FORBID:
                await self._requests.deleted(ROLE_BINDINGS.path(self._vault, _reads(step.on, step.value)))
            case Act.GRANT:
                spec = {"from": [{"namespace": self._home}], "serviceAccounts": [step.on]}
                kind = {"apiVersion": SECRET_GRANTS.api_version, "kind": SECRET_GRANTS.kind}
                await self._put(SECRET_GRANTS, kind | {"metadata": {"name": step.on}, "spec": spec})
            case Act.REVOKE:
                await self._requests.deleted(SECRET_GRANTS.path(self._vault, step.on))
        self._witness.accepted(step, self._now())

    async def _allow(self, who: str, secret: str) -> None:
        name = {"metadata": {"name": _reads(who, secret)}}
        rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]}
        await self._put(ROLES, name | {"rules": [rule]})
        subject = {"kind": "ServiceAccount", "name": who, "namespace": self._vault}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": _reads(who, secret)}
        await self._put(ROLE_BINDINGS, name | {"roleRef": ref, "subjects": [subject]})

    async def _put(self, res: Any, manifest: Manifest) -> None:
        """Create an object, or make it be so."""
        status, answer = await self._requests.call("POST", res.path(self._vault), manifest)
        if status == http.HTTPStatus.CONFLICT:
            await self._requests.accepted("PATCH", res.path(self._vault, manifest["metadata"]["name"]), manifest)
            return
        assert status == http.HTTPStatus.CREATED, f"{manifest['metadata']['name']}: {status} {answer}"

    async def wrong(self, wanted: Expected) -> AsyncIterator[str]:
        """Yield what is not as it has to be."""
        for wrong_answer in self.wrong_answers:
            yield wrong_answer
        if self._asker is None or self._asker.done():
            yield f"{PART}: nobody asks any more: {self._asker!r}"
        for who, secret in itertools.product((*ACCOUNTS, UNKNOWN_ACCOUNT), SECRETS):
            has, has_to = await self._ask(who, secret), wanted.answers.get((who, secret))
            if has_to is None and has is None:
                yield f"{PART}: no service refuses {secret} to {who}"
            elif (has_to is not None or str(has).isdecimal()) and has != has_to:
                yield f"{PART}: {who} is told {has} of {secret}, not {has_to}"

    async def release(self) -> None:
        """Ask for the deletion of everything, and ask for nothing more."""
        await self._stop()
        await self._namespaces.delete()

    async def _stop(self) -> None:
        if self._asker is not None:
            # Told, and not cancelled: wait_for of Python 3.11, which the client of NATS waits with, may drop that.
            self._asks = False
            await asyncio.wait({self._asker})
            self._asker = None
            await self._host.__aexit__()

    async def left(self) -> AsyncIterator[str]:
        """Yield what is still there."""
        async for item in self._namespaces.left():
            yield item

    async def clean_up(self) -> None:
        """Remove what is left."""
        await self._stop()
        await self._namespaces.delete()
        await self._namespaces.unhook()


def _reads(who: str, secret: str) -> str:
    return f"{who}-reads-{secret}"
