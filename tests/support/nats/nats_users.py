"""A nats-server with the users of the bus as they are generated, and keys made for the test."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from trellis.bus.accounts.accounts import ACCOUNTS_FILE, KEYS_FILE, accounts, keys
from trellis.bus.accounts.permissions import users
from trellis.config.nats_credentials import Credentials, Kind, new_seed
from trellis_dev.localcluster.nats import NatsServer


class NatsUsers:
    """Files of a directory: the server's configuration and a seed a user."""

    def __init__(self, directory: Path, clusters: Sequence[str]) -> None:
        self._directory = directory
        self._clusters = clusters
        self._seeds = {user.name: new_seed() for user in users(clusters)}
        self.config = directory / ACCOUNTS_FILE
        self.config.write_text(accounts(clusters))
        self.write()

    def credentials(self, name: str) -> Credentials:
        return Credentials(self.seed_file(name), Kind.NKEY)

    def rotate(self, name: str, server: NatsServer) -> None:
        """Give a user another key, in its file and on the server, as a person would."""
        self._seeds[name] = new_seed()
        self.write()
        self.reload(server, {})

    def restore(self, name: str, seed: str, server: NatsServer) -> None:
        """Give a user a former key again, in its file and on the server."""
        self._seeds[name] = seed
        self.write()
        self.reload(server, {})

    def reload(self, server: NatsServer, others: Mapping[str, str]) -> None:
        """Have the server read its configuration again, in which permissions are others, as a person would.

        The server does so a moment later.
        """
        self.configure(others)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGHUP)

    def configure(self, others: Mapping[str, str]) -> None:
        """Write the configuration, with other permissions, for a server that is started later."""
        text = accounts(self._clusters)
        for former, now in others.items():
            assert former in text
            text = text.replace(former, now)
        self.config.write_text(text)

    def write(self) -> None:
        public = {}
        for name, seed in self._seeds.items():
            self.seed_file(name).write_text(f"{seed}\n")
            public[name] = self.credentials(name).read().public_key
        (self._directory / KEYS_FILE).write_text(keys(self._clusters, public))

    def seed_file(self, name: str) -> Path:
        return self._directory / f"{name}.nk"
