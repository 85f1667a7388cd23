"""``trellis bus users``: keys are created once, never deleted, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from trellis.bus.accounts.accounts import ACCOUNTS_FILE, KEYS_FILE, ROUTES_FILE, accounts, routes_password
from trellis.config.nats_credentials import Credentials, Kind
from trellis_cli.bus.users import SEEDS, users_command, write
from trellis_cli.common.errors import CommandError
from trellis_cli.common.output import Format


def test_each_user_gets_a_key_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    first = write(tmp_path, ["prod"], 1)
    files = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert [row.name for row in first] == [
        "node_watcher.prod",
        "provisioner.prod",
        "host_manager.prod",
        "service_reflector.prod",
        "application_manager.prod",
        "secrets_backend.prod",
        "controller_host.prod",
        "console.prod",
        "cli",
        "outside",
    ]
    assert all(row.created for row in first)
    assert all(Credentials(Path(row.seed_file), Kind.NKEY).read().public_key == row.public_key for row in first)
    assert not any(row.created for row in write(tmp_path, ["prod"], 1))
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == files
    assert (tmp_path / ACCOUNTS_FILE).read_text() == accounts(["prod"])


def test_seeds_are_their_owners_alone(tmp_path: Path) -> None:
    rows = write(tmp_path, ["prod"], 1)
    assert (tmp_path / SEEDS).stat().st_mode & 0o077 == 0
    assert all(Path(row.seed_file).stat().st_mode & 0o177 == 0 for row in rows)


@pytest.mark.parametrize("output", list(Format))
def test_no_seed_is_printed_or_in_what_the_server_gets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: Format
) -> None:
    users_command(tmp_path, ["prod"], 1, output=output)
    shown = capsys.readouterr().out + (tmp_path / KEYS_FILE).read_text() + (tmp_path / ACCOUNTS_FILE).read_text()
    seeds = [path.read_text().strip() for path in (tmp_path / SEEDS).iterdir()]
    assert len(seeds) == 10
    assert not [seed for seed in seeds if seed in shown]


def test_servers_of_a_cluster_keep_their_password_which_is_their_owners_alone(tmp_path: Path) -> None:
    write(tmp_path, ["prod"], 3, ["a:6222"])
    routes = tmp_path / ROUTES_FILE
    password = routes_password(routes.read_text())
    assert password
    assert routes.stat().st_mode & 0o177 == 0
    write(tmp_path, ["prod"], 3, ["a:6222", "b:6222"])
    assert f"routes:{password}@b:6222" in routes.read_text()


def test_another_cluster_leaves_the_keys_of_the_first(tmp_path: Path) -> None:
    first = {row.name: row.public_key for row in write(tmp_path, ["prod"], 1)}
    both = {row.name: row.public_key for row in write(tmp_path, ["prod", "test"], 1)}
    assert first.items() <= both.items()


def test_a_key_whose_seed_is_elsewhere_is_kept(tmp_path: Path) -> None:
    first = {row.name: row for row in write(tmp_path, ["prod"], 1)}
    Path(first["cli"].seed_file).unlink()
    again = {row.name: row for row in write(tmp_path, ["prod"], 1)}
    assert again["cli"].public_key == first["cli"].public_key
    assert again["cli"].seed_file == ""


def test_a_cluster_that_is_not_named_is_not_locked_out_by_mistake(tmp_path: Path) -> None:
    write(tmp_path, ["prod", "test"], 1)
    before = (tmp_path / ACCOUNTS_FILE).read_text()
    with pytest.raises(CommandError, match=r"NKEY_NODE_WATCHER_TEST\b.*--cluster\b"):
        write(tmp_path, ["prod"], 1)
    assert (tmp_path / ACCOUNTS_FILE).read_text() == before


def test_a_seed_file_with_something_else_in_it_is_named_and_left(tmp_path: Path) -> None:
    write(tmp_path, ["prod"], 1)
    path = tmp_path / SEEDS / "cli.nk"
    path.write_text("precious")
    with pytest.raises(CommandError, match=r"/cli\.nk\b"):
        write(tmp_path, ["prod"], 1)
    assert path.read_text() == "precious"
