"""Breaks of the installer: its downloads, the disk of its node."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

DOWNLOADS: Final = (
    Break(
        "an archive with .. in a path is unpacked",
        "security: an archive writes only into its target directory",
        "node_installer",
        "check_path",
        'if ".." in parts or name.startswith("/")',
        'if name.startswith("/")',
        "tests/unit/node_installer/test_sources.py::test_every_bad_archive_is_refused",
    ),
    Break(
        "an archive may expand without limit",
        "security: an archive does not expand without limit",
        "node_installer",
        "copy_limited",
        "if written > MAX_SHIM_BYTES:",
        "if len(block) > MAX_SHIM_BYTES:",
        "tests/unit/node_installer/test_sources.py::test_an_archive_that_unpacks_to_too_much_is_refused",
    ),
    Break(
        "a download with another checksum is installed",
        "security: nothing is installed without its sha256",
        "node_installer",
        "Stage._download",
        "if source.sha256 and source.sha256 != digest:",
        "if source.sha256 and not digest:",
        "tests/unit/node_installer/test_sources.py::test_a_wrong_checksum_is_refused",
    ),
    Break(
        "a file of the installer's image with another checksum is installed",
        "ADR 28: a path in the installer's image needs its sha256",
        "node_installer",
        "Stage._from_image",
        "(digest := _sha256(path)) != source.sha256",
        "(digest := _sha256(path)) == ''",
        "tests/unit/node_installer/test_sources.py::"
        "test_a_file_of_the_installers_image_with_another_checksum_is_refused",
    ),
    Break(
        "a signature beside a shim counts as a second shim",
        "ADR 104: releases of the catalogue can be installed",
        "node_installer",
        "choose",
        "not in _SIGNATURES]",
        "not in ()]",
        "tests/unit/node_installer/test_sources.py::test_every_kind_of_archive_is_installed",
    ),
    Break(
        "a source without a checksum is fetched",
        "security: nothing is installed without its sha256",
        "node_installer",
        "source_of",
        "if require_checksum and not source.is_pinned:",
        "if not require_checksum and not source.is_pinned:",
        "tests/unit/node_installer/test_sources.py::test_a_missing_checksum_is_refused_before_anything_is_fetched",
    ),
    Break(
        "a redirect may lead to plain http",
        "security: TLS without exceptions, redirects included",
        "node_installer",
        "_Redirects.redirect_request",
        "self._web.check_scheme(newurl)",
        "self._web.check_scheme(req.full_url)",
        "tests/unit/node_installer/test_sources.py::test_a_redirect_to_plain_http_is_refused",
    ),
    Break(
        "credentials in an address follow a redirect",
        "security: credentials are sent only to their own host",
        "node_installer",
        "Web._open",
        'if name.lower() == "authorization":',
        'if name == "authorization":',
        "tests/unit/node_installer/test_sources.py::"
        "test_credentials_of_an_address_go_to_its_host_only_and_into_no_message",
    ),
)

DISK: Final = (
    Break(
        "an absolute symbolic link leads out of the node's file system",
        "security: symbolic links are followed as on the node",
        "node_installer",
        "Disk.real",
        'if link.startswith("/"):',
        'if link.startswith("//"):',
        "tests/unit/node_installer/test_node.py::test_links_never_lead_out_of_the_node",
    ),
    Break(
        "the backup of a configuration is world-readable",
        "security: only root can read files that may contain a secret",
        "node_installer",
        "Disk.write",
        "0o600 if private else 0o644",
        "0o644",
        "tests/unit/node_installer/test_config_kept.py::test_the_state_holds_a_former_configuration_and_is_roots_alone",
    ),
    Break(
        "a file that a user edited is restored to its former content",
        "ADR 18: changes of users to a configuration are kept",
        "node_installer",
        "_cleared",
        "if known and not adopted and hashlib.sha256(found.files[path]).hexdigest() == known.written_sha256:",
        "if known and not adopted:",
        "tests/unit/node_installer/test_config_kept.py::test_a_config_file_edited_by_a_user_keeps_the_edit",
    ),
    Break(
        "a handler that a user configured is taken over",
        "ADR 18: configuration of a user is never removed",
        "node_installer",
        "_whose",
        "if leftover is not None:",
        "if leftover is not None or not _rendered(found, path):",
        "tests/unit/node_installer/test_owners.py::test_a_handler_configured_by_hand_is_refused",
    ),
    Break(
        "shims get an option that containerd 1.6 does not pass on",
        "shims: the installer sets an option only where the containers start with it",
        "node_installer",
        "_obstacle",
        "found.live.numbers < (1, 7)",
        "found.live.numbers < (1, 6)",
        "tests/unit/node_installer/test_cgroups.py::test_containerd_that_does_not_pass_options_gets_none",
    ),
    Break(
        "a node with cgroup v1 is reported as if its shims used systemd",
        "shims: a warning names why containers are outside the cgroups of their pods",
        "node_installer",
        "_obstacle",
        "if not found.has_cgroup_v2:",
        "if False:",
        "tests/unit/node_installer/test_cgroups.py::test_a_node_with_cgroup_v1_gets_none",
    ),
    Break(
        "a configuration that cannot be parsed is written",
        "ADR 18: a configuration is parsed and compared before it is written",
        "node_installer",
        "_means",
        "return False",
        "return True",
        "tests/unit/node_installer/test_presets.py::test_the_result_is_the_expected_tree",
    ),
)
