"""In each Python process that a test starts: a service in it comes as its account, as the tests' own services do.

Python imports this by its name, from ``PYTHONPATH``. It imports nothing itself, and waits for
``trellis.runtime.service`` to be imported and for a service to run: most processes are not services.
"""

from __future__ import annotations

import os
import sys

SERVICE = "trellis.runtime.service"
VARIABLE = "SUITE_KUBECONFIG"


class Afterwards:
    """Finds and loads one module as everybody does, and then has its services come as accounts."""

    def find_spec(self, fullname, path, target=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Find the one module, and be gone."""
        if fullname != SERVICE:
            return None
        from importlib.machinery import PathFinder  # noqa: PLC0415 - only here is it needed

        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Leave it to the real loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Run the module's code, and have the first service that runs change it."""
        self._loader.exec_module(module)
        as_written = module.Service.run

        async def run(service, stop):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            if module.Service.run is run:
                module.Service.run = as_written
                if VARIABLE in os.environ:  # not that of a process which this one was forked from
                    _come_as_accounts()
            await module.Service.run(service, stop)

        module.Service.run = run


def _come_as_accounts() -> None:
    from pathlib import Path  # noqa: PLC0415 - only here is it needed

    sys.path.append(str(Path(__file__).parents[3]))
    from support.suite.suite_accounts import (  # noqa: PLC0415 - it imports services
        DIRECTORY_VARIABLE,
        KUBECONFIG_VARIABLE,
        come_as_accounts,
    )

    come_as_accounts(Path(os.environ[KUBECONFIG_VARIABLE]), Path(os.environ[DIRECTORY_VARIABLE]))


if VARIABLE in os.environ:
    sys.meta_path.insert(0, Afterwards())  # type: ignore[arg-type]
