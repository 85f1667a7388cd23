"""Links: which host interfaces a workload needs, and by which listener it is reached.

Pure. In: an application, its workloads, the namespace. Out: the host interfaces and the listeners of each workload.
Called by ``convert``. Invariant: each link, and each configuration and secret at its ends, is recorded: as a part of a
workload, or with the reason why it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from trellis_cli.migrate.model.to_v2.interfaces import VERSION_MOST
from trellis_cli.migrate.model.to_v2.plugins import HANDLER, Plugins, Workload
from trellis_cli.migrate.model.to_v2.providers import HTTP_CLIENT, PLUGINS, provider_of
from trellis_cli.migrate.model.to_v2.reading import App, Ends, Link, Piece
from trellis_cli.migrate.model.to_v2.report import Reason, Record, Way
from trellis_cli.migrate.model.to_v2.routes import Listener, listener_of
from trellis_cli.migrate.model.to_v2.secrets import Secrets

_REPLACEMENT: Final = (
    "Write a host plugin, run it as the service of the workload (a component that exports wasi:cli/run), run it as a "
    "container with a Service, or keep the application on v1."
)
_REPLACED_BY: Final = (Way.PLUGIN, Way.SERVICE, Way.CONTAINER, Way.V1)


@dataclass(frozen=True, slots=True)
class Links:
    """The links of an application. ``workloads``: by the name of a component; ``secrets``: its secrets."""

    app: App
    workloads: Mapping[str, Workload]
    secrets: Secrets
    record: Record

    @property
    def _plugins(self) -> Plugins:
        return Plugins(self.app.name, self.secrets, self.record)

    def translate(self) -> None:
        """Translate each link, those of providers first, and record each provider.

        The entry of an export has no name; an import with another backend has one.
        """
        pieces = {piece.name: piece for piece in self.app.pieces}
        used: dict[str, str] = {}
        links = map(self._with_valid_version, self.app.links)
        for link in sorted(links, key=lambda link: not pieces[link.source].provider):
            target = self._link(link, pieces[link.source], pieces.get(link.target))
            for end in (pieces[link.source], pieces.get(link.target)):
                if target and end is not None and end.provider:
                    used.setdefault(end.place, target)
        linked = {name for link in self.app.links for name in (link.source, link.target)}
        for piece in self.app.pieces:
            if piece.provider:
                self._provider(piece, used.get(piece.place, ""), linked=piece.name in linked)

    def _with_valid_version(self, link: Link) -> Link:
        """Return a link without a version that the CRD does not accept, and record it."""
        if len(link.version) <= VERSION_MOST:
            return link
        self.record.note(
            f"{link.place}.properties.package",
            Reason.INTERFACE_NOT_IN_V2,
            f"link {link.wit} of {link.source} has a version of more than {VERSION_MOST} characters",
            "Correct the version.",
            Way.MANIFEST,
        )
        return replace(link, version="")

    def _link(self, link: Link, source: Piece, target: Piece | None) -> str:
        """Return the workload that has a link, "" if none has it."""
        if target is None:
            message = f"link {link.wit} of {link.source}: the application has no component {link.target!r}"
            self.record.note(link.place, Reason.LINK_TARGET_MISSING, message, "Correct its target.", Way.MANIFEST)
            return ""
        if shared := source.shared or target.shared:
            self._between_applications(link, target if target.shared else source, shared)
            return ""
        match source.provider, target.provider:
            case False, False:
                return self._between_components(link)
            case False, True:
                return self._import(link, target)
            case True, False:
                return self._export(link, source)
            case _:
                self._not_translated(link, "it connects two providers", "Replace both providers.", Way.CONTAINER)
                return ""

    def _between_components(self, link: Link) -> str:
        workload = self.workloads.get(link.source)
        if workload is None or self.workloads.get(link.target) is not workload:
            self._not_translated(link, "one of its components has no image", "Set the image.", Way.MANIFEST)
            return ""
        self.record.done(link.place, workload.target)
        self._ends(link, link.source_end, link.target_end)
        self._plugins.name(link)
        return workload.target

    def _import(self, link: Link, piece: Piece) -> str:
        """Translate a link of a component to a provider."""
        provider, workload = provider_of(piece.image), self.workloads.get(link.source)
        if provider is None or workload is None:
            self._without_plugin(link, piece, workload)
            return ""
        self._ends(link, link.source_end)
        if provider.package == "http":
            return self._egress(link, piece, workload)
        return self._plugins.imported(link, piece, provider, workload)

    def _export(self, link: Link, piece: Piece) -> str:
        """Translate a link of a provider to a component."""
        provider, workload = provider_of(piece.image), self.workloads.get(link.target)
        if provider is None or workload is None:
            self._without_plugin(link, piece, workload)
            return ""
        self._ends(link, link.target_end)
        serves = provider.package == "http" and provider.image != HTTP_CLIENT
        if serves and link.package_name == provider.wit and "incoming-handler" in link.interfaces:
            if workload.listener is not None:
                self._second_listener(link, piece, workload.listener)
                return ""
            workload.listener = listener_of(link, piece, self.record)
            self._plugins.name(link, selected=False)
            self._plugins.credentials((*piece.secrets, *link.source_end.secrets), link.source)
            self.record.done(link.place, workload.target)
            return workload.target
        if provider.package == "messaging" and HANDLER in link.interfaces:
            return self._plugins.exported(link, piece, provider, workload)
        self._not_translated(link, f"plugins of v2 do not call {link.wit}", "Write a host plugin.", Way.PLUGIN)
        return ""

    def _second_listener(self, link: Link, piece: Piece, first: Listener) -> None:
        """Record a listener that its workload has no place for: none of its settings translates."""
        port = listener_of(link, piece, Record()).port
        self.record.note(
            link.place,
            Reason.SECOND_LISTENER,
            f"port {port} of {link.source}: a workload of v2 has one Host header and one port",
            f"Use port {first.port}."
            if link.target == first.component
            else f"Put {link.target} into a separate application.",
            Way.MANIFEST,
        )

    def _egress(self, link: Link, piece: Piece, workload: Workload) -> str:
        """Record a link for outgoing requests: v2 links wasi:http always, and permits no host by default."""
        if link.package_name != "wasi:http" or "outgoing-handler" not in link.interfaces:
            self._not_translated(link, f"{piece.name} does not serve it", "Correct the link.", Way.MANIFEST)
            return ""
        self.record.note(
            link.place,
            Reason.EGRESS_DENIED,
            f"{link.source} sends HTTP requests by {piece.name}; v2 denies all of them while allowedHosts is empty",
            f"List the hosts that {link.source} calls in localResources.allowedHosts.",
            Way.OBJECT,
        )
        self._plugins.name(link)
        for config in (*piece.config, *link.target_end.config):
            self.record.note(
                config.place,
                Reason.PROVIDER_SETTING,
                f"settings of {piece.name} have no counterpart on v2",
                "Nothing replaces them.",
                Way.NOTHING,
            )
        self._plugins.credentials((*piece.secrets, *link.target_end.secrets), piece.name)
        return workload.target

    def _provider(self, piece: Piece, target: str, *, linked: bool) -> None:
        """Record a provider, its image, its scalers and its identity; ``target``: a workload that uses it, or ""."""
        provider = provider_of(piece.image)
        if piece.shared:
            return  # recorded with the shared components
        if provider is None:
            message = f"hosts of v2 have no plugin for provider {piece.name}"
            self.record.note(piece.place, Reason.PROVIDER_NOT_IN_V2, message, _REPLACEMENT, *_REPLACED_BY)
            return
        if not target:
            self.record.note(
                piece.place,
                Reason.PROVIDER_NOT_USED,
                f"provider {piece.name} has no link that translates, so no workload has its settings",
                "See the lines of its links." if linked else "Remove it from the application, or link it.",
                Way.MANIFEST,
            )
            return
        self.record.done(piece.place, target)
        self.record.done(f"{piece.place}.properties.image", f"plugin {provider.wit} of the hosts")
        for config in piece.config:
            self.record.done(config.place, target)
        for scaler in piece.scalers:
            message = f"provider {piece.name} is scaled; on v2 its plugin runs in each host"
            self.record.note(scaler.place, Reason.PROVIDER_SCALER, message, "Nothing replaces it.", Way.NOTHING)

    def _between_applications(self, link: Link, piece: Piece, shared: str) -> None:
        instead = (
            "Copy the provider into this application, and repeat the command."
            if piece.provider
            else "Merge the applications, or let them exchange messages by wasmcloud:messaging."
        )
        message = (
            f"link {link.wit} of {link.source}: {piece.name} is in application {shared}; v2 does not link workloads"
        )
        self.record.note(link.place, Reason.LINK_BETWEEN_APPLICATIONS, message, instead, Way.MANIFEST, Way.V1)

    def _without_plugin(self, link: Link, piece: Piece, workload: Workload | None) -> None:
        if workload is None:
            self._not_translated(link, "its component has no image", "Set the image.", Way.MANIFEST)
            return
        reason = f"hosts have no plugin for {piece.name}"
        if backends := PLUGINS.get(link.package_name):
            instead = f"Hosts of v2 have plugins for {', '.join(backends)}: add {link.package_name} to hostInterfaces."
            self._not_translated(link, reason, instead, Way.PLUGIN)
        else:
            self._not_translated(link, reason, _REPLACEMENT, *_REPLACED_BY)

    def _not_translated(self, link: Link, reason: str, instead: str, *ways: Way) -> None:
        message = f"link {link.wit} of {link.source} to {link.target}: {reason}"
        self.record.note(link.place, Reason.LINK_NOT_TRANSLATED, message, instead, *ways)

    def _ends(self, link: Link, *ends: Ends) -> None:
        """Record configurations and secrets at the end of a component."""
        for place in (place for end in ends for place in end.places):
            message = f"link {link.wit} of {link.source}: a component of v2 has no configuration per link"
            instead = "Move it to the configuration of the component."
            self.record.note(place, Reason.LINK_SETTING, message, instead, Way.MANIFEST)
