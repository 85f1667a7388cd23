"""The host interface that replaces the link of a component and a provider.

Pure. In: a link, its provider, a workload. Out: the workload with one more host interface. Called by ``links``.
Invariants: each configuration and secret of the link is recorded: as a setting of the host interface, or with the
reason why it is not; if a workload has no place for a link, only a line of the report has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from trellis_cli.migrate.model.to_v2.configs import note_unreadable
from trellis_cli.migrate.model.to_v2.interfaces import ENTRIES_MOST, OF_EXPORTS, Interfaces, Need, Outcome
from trellis_cli.migrate.model.to_v2.object_names import part_name
from trellis_cli.migrate.model.to_v2.providers import (
    BUCKETS,
    FILESYSTEM,
    POSTGRES,
    SUBSCRIPTIONS,
    URL,
    Provider,
    Settings,
    entries_of,
    settings_of,
)
from trellis_cli.migrate.model.to_v2.reading import Config, Ends, Link, Piece, SecretUse
from trellis_cli.migrate.model.to_v2.report import Reason, Record, Way
from trellis_cli.migrate.model.to_v2.routes import Listener
from trellis_cli.migrate.model.to_v2.secrets import Secrets

HANDLER: Final = "handler"
"""Interface of ``wasmcloud:messaging`` that a component exports."""
_NATS: Final = "nats"
_REMOTE: Final = frozenset({_NATS, "redis"})
"""Backends with an address."""
_BY_DEFAULT: Final = (
    Need("wasi", "config", ("store",)),
    Need("wasi", "logging", ("logging",)),
)
"""Interfaces that hosts of v1 give to each component without a link; v2 links what a workload lists."""


@dataclass(slots=True)
class Workload:
    """The components that share a workload. ``target``: its text in the report."""

    name: str
    target: str
    components: tuple[Piece, ...]
    interfaces: Interfaces = field(default_factory=lambda: Interfaces(_BY_DEFAULT))
    listener: Listener | None = None


@dataclass(frozen=True, slots=True)
class Plugins:
    """Translates links to and from providers with a plugin. ``application``: prefix of the names of Secrets."""

    application: str
    secrets: Secrets
    record: Record

    def imported(self, link: Link, piece: Piece, provider: Provider, workload: Workload) -> str:
        """Translate a link of a component to a provider; return the workload, "" if it has no place for it."""
        return self._translate(link, piece, provider, workload, link.target_end)

    def exported(self, link: Link, piece: Piece, provider: Provider, workload: Workload) -> str:
        """Translate a link of a provider that calls a component; the same result."""
        return self._translate(link, piece, provider, workload, link.source_end)

    def _translate(self, link: Link, piece: Piece, provider: Provider, workload: Workload, end: Ends) -> str:
        """Translate a link; ``end``: the end of its provider."""
        offered = self._offered(link, provider)
        if not offered:
            return ""
        configs = (*piece.config, *end.config)
        settings = settings_of(provider, configs)
        if HANDLER not in offered:
            settings = self._of_import(link, provider, settings, end)
        uses = (*piece.secrets, *end.secrets)
        secrets = self._secrets(piece, provider, settings, uses)
        target, named = self._need(link, _need_of(link, provider, offered, settings, secrets), workload)
        if target:
            self._settings(link, piece, provider, settings, configs)
            self._backend(link, piece, provider, settings, named)
        if target and provider.backend == POSTGRES:
            places = [*(place for place, _ in settings.secret), *(use.place for use in uses)]
            self._postgres(link, piece, named, places)
        return target

    def _of_import(self, link: Link, provider: Provider, settings: Settings, end: Ends) -> Settings:
        """Return the settings of an import, which subscribes to nothing; record subscriptions of its link."""
        for config, key, _ in entries_of(end.config, []):
            if provider.settings.get(key.lower()) == SUBSCRIPTIONS:
                self.record.note(
                    config.entry(key),
                    Reason.PROVIDER_SETTING,
                    f"link {link.wit} of {link.source}: only links to {HANDLER} subscribe on v2",
                    f"Move {key} to the link to {HANDLER}.",
                    Way.MANIFEST,
                )
        values = {key: value for key, value in settings.values.items() if key not in OF_EXPORTS}
        return replace(settings, values=values)

    def _need(self, link: Link, need: Need, workload: Workload) -> tuple[str, str]:
        """Add a host interface to a workload; return the workload, "" if it has no place for it, and its name."""
        exported = HANDLER in need.interfaces
        interfaces, outcome, named = workload.interfaces.with_need(need, link.target if exported else link.source)
        if outcome is Outcome.FULL or (outcome is Outcome.NAMED and exported):
            self._no_place(link, full=outcome is Outcome.FULL)
            return "", ""
        workload.interfaces = interfaces
        self.record.done(link.place, workload.target)
        if outcome is Outcome.NAMED:
            self.record.note(
                f"{link.place}.properties.interfaces",
                Reason.INTERFACE_CONFLICT,
                f"link {link.wit} of {link.source}: {need.namespace}:{need.package} without a name has another backend",
                f"Let the component import it under the label {named}, or put it into a separate application.",
                Way.COMPONENT,
                Way.MANIFEST,
            )
        self.name(link, named, selected=not exported)
        return workload.target, named

    def _no_place(self, link: Link, *, full: bool) -> None:
        self.record.undo(link.place)
        if full:
            message = f"link {link.wit} of {link.source}: a workload has at most {ENTRIES_MOST} host interfaces"
            self.record.note(link.place, Reason.TOO_MANY_INTERFACES, message, "Split the application.", Way.MANIFEST)
            return
        message = f"link {link.wit} to {link.target}: another link to a {HANDLER} of its workload has other settings"
        instead = "Join the subscriptions in one link, or put the components into separate applications."
        self.record.note(link.place, Reason.INTERFACE_CONFLICT, message, instead, Way.MANIFEST)

    def _offered(self, link: Link, provider: Provider) -> tuple[str, ...]:
        """Return the interfaces of a link that the plugin has, and record the remaining ones."""
        if link.package_name != provider.wit or not link.interfaces:
            message = f"link {link.wit} of {link.source}: the plugin for {provider.image} has {provider.wit} only"
            self.record.note(link.place, Reason.INTERFACE_NOT_IN_V2, message, "Correct the link.", Way.MANIFEST)
            return ()
        offered = tuple(item for item in link.interfaces if item in provider.offered)
        missing = [item for item in link.interfaces if item not in provider.offered]
        if missing:
            self.record.note(
                f"{link.place}.properties.interfaces" if offered else link.place,
                Reason.INTERFACE_NOT_IN_V2,
                f"link {link.wit} of {link.source}: hosts of v2 have no {provider.wit}/{','.join(missing)}",
                "Write a host plugin, or use the other interfaces of the package.",
                Way.PLUGIN,
                Way.COMPONENT,
            )
        return offered

    def _settings(
        self, link: Link, piece: Piece, provider: Provider, settings: Settings, configs: Iterable[Config]
    ) -> None:
        """Record the settings of a provider: those that translate, do not translate, or mean something else."""
        for config in configs:
            self.record.done(config.place, f"{provider.wit} of {link.source}")
            note_unreadable(config, self.record)
        for place in settings.done:
            self.record.done(place, f"{provider.wit} of {link.source}")
        for place, key in settings.left:
            message = f"setting {key!r} of {piece.name} has no counterpart in {provider.wit} of v2"
            self.record.note(place, Reason.PROVIDER_SETTING, message, "Set it in the backend.", Way.HOSTS)
        for place in settings.more:
            message = f"{piece.name} has several servers or queue groups; v2 gets the first server, and no group"
            self.record.note(place, Reason.PROVIDER_SETTING, message, "Use one DNS name or one group.", Way.HOSTS)
        for config in settings.external:
            self.record.note(
                config.place,
                Reason.NAMED_CONFIGURATION,
                f"configuration {config.name} of {piece.name} is in the lattice and not in the application",
                f"Add what `wash config get {config.name}` prints to config of {provider.wit}.",
                Way.OBJECT,
            )
        if BUCKETS in settings.values:
            self.record.note(
                f"{link.place}.properties.target",
                Reason.BUCKET_NAME,
                f"{piece.name} chose bucket {settings.values[BUCKETS]}; on v2 the component opens a bucket by name",
                f"Let {link.source} open {settings.values[BUCKETS]}.",
                Way.COMPONENT,
            )

    def _backend(self, link: Link, piece: Piece, provider: Provider, settings: Settings, named: str) -> None:
        """Record that hosts of v2 do not reach the backend with the data of v1. ``named``: name of the entry, or "".

        Source: plugins of ``wash host`` 2.7. Entries with a name have plugins that read ``backend``; those without a
        name have plugins for the data NATS of the host.
        """
        if not named and provider.backend != POSTGRES:
            self._not_selected(link, piece, provider)
        elif settings.local or (provider.backend in _REMOTE and URL not in settings.values and not settings.secret):
            self.record.note(
                next(iter(settings.local), f"{link.place}.properties.target"),
                Reason.BACKEND_ADDRESS,
                f"{piece.name} connects to its own host; hosts of v2 have no {provider.backend} there",
                f"Set url of {provider.wit}, or of its Secret, to the backend with the data of v1, or copy the data.",
                Way.OBJECT,
            )
        if provider.backend == FILESYSTEM:
            self.record.note(
                f"{link.place}.properties.target",
                Reason.BACKEND_ADDRESS,
                f"{piece.name} has its data in a directory of its host; hosts of v2 do not have that directory",
                f"Mount a volume with the data in the pods of the hosts, and set root of {provider.wit} to its path.",
                Way.HOSTS,
                Way.OBJECT,
            )

    def _not_selected(self, link: Link, piece: Piece, provider: Provider) -> None:
        instead: dict[Way, str] = {}
        if HANDLER not in link.interfaces:
            instead[Way.COMPONENT] = f"Let {link.source} import it under a label."
        if provider.backend == _NATS:
            instead[Way.HOSTS] = f"Start the hosts with --data-nats-url of the NATS of {piece.name}."
        message = (
            f"hosts of v2 serve {provider.wit} without a label from their data NATS; backend and url have no effect"
        )
        place = f"{link.place}.properties.target"
        self.record.note(place, Reason.BACKEND_NOT_SELECTED, message, " ".join(instead.values()), *instead)

    def _secrets(
        self, piece: Piece, provider: Provider, settings: Settings, uses: Sequence[SecretUse]
    ) -> tuple[str, ...]:
        """Return the names of the Secrets of a host interface, and record which ones must be created."""
        plain = part_name(self.application, piece.name)
        if provider.backend == POSTGRES:
            return (plain,)  # recorded when its entry has a name, or none
        found: list[str] = []
        for place, key in settings.secret:
            wanted = provider.settings.get(key.lower()) == URL
            found += [plain] if wanted else []
            message = f"setting {key!r} of {piece.name} has credentials, which are not written to a workload"
            instead = f"Create Secret {plain} with the key url." if wanted else "v2 has no such setting."
            self.record.note(place, Reason.CREDENTIALS, message, instead, Way.OBJECT)
        for use in uses:
            found += self._address_in_secret(use, piece, provider, plain)
        return tuple(dict.fromkeys(found))

    def _postgres(self, link: Link, piece: Piece, named: str, places: Iterable[str]) -> None:
        """Record how a database gets its address: by the Secret of an entry with a name, else by the host."""
        secret, url = part_name(self.application, piece.name), "postgres://USER:PASSWORD@HOST:PORT"
        if named:
            instead, way = f"Create Secret {secret} with the key url: {url}/DATABASE.", Way.OBJECT
        else:
            instead, way = (
                f"Start the hosts with --postgres-url {url}, and set database of wasmcloud:postgres.",
                Way.HOSTS,
            )
        message = f"{piece.name} has its address and credentials in several settings; v2 reads one address"
        for place in (f"{link.place}.properties.target", *places):
            self.record.note(place, Reason.CREDENTIALS, message, instead, way)

    def _address_in_secret(self, use: SecretUse, piece: Piece, provider: Provider, plain: str) -> list[str]:
        """Return the Secret with the address of a backend; one with another key has to be created."""
        if provider.settings.get(use.name.lower()) != URL:
            self.credentials((use,), piece.name)
            return []
        policy = self.secrets.policy(use)
        if policy is not None and self.secrets.unreadable(use, policy) is None and use.field == URL:
            self.record.done(use.place, f"Secret {self.secrets.namespace}/{use.key}")
            return [use.key]
        message = (
            f"secret {use.name} of {piece.name} is not in key url of a Secret of namespace {self.secrets.namespace}"
        )
        self.record.note(use.place, Reason.CREDENTIALS, message, f"Create Secret {plain} with the key url.", Way.OBJECT)
        return [plain]

    def credentials(self, uses: Iterable[SecretUse], what: str) -> None:
        """Record secrets that no plugin reads."""
        for use in uses:
            message = f"secret {use.name} of {what} has no counterpart: the plugin has no such setting"
            self.record.note(use.place, Reason.CREDENTIALS, message, "Configure the hosts of v2 with it.", Way.HOSTS)

    def name(self, link: Link, named: str = "", *, selected: bool = True) -> None:
        """Record a link with a name: components of v2 have no link names, but labels of imports.

        ``selected``: a component selects it; a provider calls the targets of all of its links.
        """
        if not link.name:
            return
        place = f"{link.place}.properties.name"
        if not selected:
            message = f"{link.source} calls {link.target} by the link {link.name!r}; exports have no name on v2"
            self.record.note(place, Reason.LINK_NAME, message, "Nothing replaces it.", Way.NOTHING)
            return
        self.record.note(
            place,
            Reason.LINK_NAME,
            f"{link.source} selects the link {link.name!r} by wasmcloud:bus/lattice, which v2 does not have",
            f"Let it import the package under the label {named}." if named else "v2 has one link only.",
            Way.COMPONENT,
        )


def _need_of(
    link: Link, provider: Provider, offered: tuple[str, ...], settings: Settings, secrets: tuple[str, ...]
) -> Need:
    """Return the host interface of a link; exports have no name, and no further interfaces."""
    exported = HANDLER in offered
    interfaces = offered if exported else tuple(dict.fromkeys((*offered, *provider.along)))
    name = "" if exported else link.name
    return Need(
        provider.namespace,
        provider.package,
        interfaces,
        link.version,
        name,
        settings.values,
        secrets,
        by_host=provider.backend == POSTGRES,
    )
