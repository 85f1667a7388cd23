"""Imports the required parts of the package ``kubernetes`` without loading the rest.

Out: its loader of the credentials of a pod and its HTTP session, for ``trellis.kube.access``;
``trellis.kube.kubeconfig`` imports the loader of kubeconfigs. Any import of ``kubernetes`` loads its complete
synchronous client, a second HTTP library and OAuth; ``kubernetes.aio`` loads its dynamic client and watches;
``kubernetes.aio.config`` and ``kubernetes.aio.utils`` load YAML. A pod needs none of these. This module registers empty
packages in their place, through which only their submodules can be imported: attributes such as
``kubernetes.aio.config.load_kube_config`` are then missing in the process. That saves 11.5 MiB of 65.7 MiB in each
process, 331 of 934 modules and a sixth of the CPU time of the import (version 37.0.2, ``python bench/kube_client.py``).
The package itself loads its 108 MiB of generated classes lazily.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from typing import Final

_EMPTY: Final = ("kubernetes", "kubernetes.aio", "kubernetes.aio.config", "kubernetes.aio.utils")
"""Each after its parent package."""
# If the package was imported before, other code uses it: do not replace it.
for _name in () if _EMPTY[0] in sys.modules else _EMPTY:
    if (_spec := find_spec(_name)) is not None:
        sys.modules[_name] = module_from_spec(_spec)
        _parent, _, _child = _name.rpartition(".")
        if _parent:  # as an import does
            setattr(sys.modules[_parent], _child, sys.modules[_name])

from kubernetes.aio.client.configuration import Configuration  # noqa: E402 - after the above
from kubernetes.aio.client.rest import RESTClientObject  # noqa: E402 - as above
from kubernetes.aio.config.config_exception import ConfigException  # noqa: E402 - as above
from kubernetes.aio.config.incluster_config import (  # noqa: E402 - as above
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_PORT_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    load_incluster_config,
)

__all__ = [
    "SERVICE_CERT_FILENAME",
    "SERVICE_HOST_ENV_NAME",
    "SERVICE_PORT_ENV_NAME",
    "SERVICE_TOKEN_FILENAME",
    "ConfigException",
    "Configuration",
    "RESTClientObject",
    "load_incluster_config",
]
