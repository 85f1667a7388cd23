"""Reads a kubeconfig with the loader of the client library.

In: its path, a context. Out: a complete ``Configuration``. Called by ``trellis.kube.access``, which imports this module
with the first kubeconfig: a pod has none, and the loader needs 2.4 MiB for YAML and OpenID. Invariant: credential
plugins are run by ``exec_plugin``, never by the library.
"""

from __future__ import annotations

from typing import Any

from kubernetes.aio.config.kube_config import FileOrData, KubeConfigLoader, KubeConfigMerger

from trellis.kube.exec_plugin import Plugin


class _Loader(KubeConfigLoader):  # type: ignore[misc]  # the package has no type hints
    """The client library's loader with other plugin code: the library has no timeout and hides failures of plugins."""

    plugin: Plugin

    async def load_from_exec_plugin(self) -> bool:
        """Set the credentials of the plugin; return True, which ignores other credentials of the user."""
        await self.plugin.run(self._user["exec"].value)
        found = self.plugin.credential
        if self.plugin.failure:
            return True
        if found.token:
            self.token = f"Bearer {found.token}"
        if found.certificate:
            self.cert_file = FileOrData({"data": found.certificate}, None, "data", base64_file_content=False).as_file()
            self.key_file = FileOrData({"data": found.key}, None, "data", base64_file_content=False).as_file()
        return True


async def load_kubeconfig(
    source: str,
    context: str | None,
    configuration: Any,  # noqa: ANN401 - untyped package
    plugin: Plugin,
) -> None:
    """Fill in ``configuration``; ``source``: one or several paths; ``context``: None means the current one.

    Raises:
        Exception: any exception of YAML, files and the library.
    """
    loader = _Loader(KubeConfigMerger(source).config, context, config_base_path=None)
    loader.plugin = plugin
    await loader.load_and_set(configuration)
