"""Breaks of the pages of nodes and Shims: conclusions from unread lists, and from Events about the past."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

_NODE: Final = (
    "tests/unit/read_model/test_explain_unread.py::test_a_page_concludes_nothing_about_a_node_from_what_it_cannot_read"
)
_SHIM: Final = (
    "tests/unit/read_model/test_explain_unread.py::"
    "test_a_page_concludes_nothing_about_a_shim_from_nodes_that_it_cannot_read"
)
_UNKNOWN: Final = "troubleshooting: what the account of the viewer may not read is unknown"

UNREAD: Final = (
    Break(
        "a node is not opted in although Shims cannot be listed",
        _UNKNOWN,
        "trellis",
        "_opted_in_line",
        "snapshot.unknown(SHIM)",
        "snapshot.unknown()",
        _NODE,
    ),
    Break(
        "a node has no auto-provisioning although Jobs cannot be listed",
        _UNKNOWN,
        "trellis",
        "_opted_in_line",
        "snapshot.unknown(JOB, LEDGER)",
        "snapshot.unknown(LEDGER)",
        _NODE,
    ),
    Break(
        "a node waits for the halted rollout of a Shim that may not select it",
        _UNKNOWN,
        "trellis",
        "_obstacles",
        "if unknown := snapshot.unknown(SHIM):",
        "if unknown := snapshot.unknown():",
        _NODE,
    ),
    Break(
        "a node waits for a free slot although Jobs cannot be listed",
        _UNKNOWN,
        "trellis",
        "_unknown_state",
        "unknown = snapshot.unknown(JOB, SHIM, LEDGER)",
        "unknown = snapshot.unknown(SHIM, LEDGER)",
        _NODE,
    ),
    Break(
        "a node waits for a free slot although the ledger cannot be read",
        _UNKNOWN,
        "trellis",
        "_unknown_state",
        "unknown = snapshot.unknown(JOB, SHIM, LEDGER)",
        "unknown = snapshot.unknown(JOB, SHIM)",
        _NODE,
    ),
    Break(
        "the installer of a node runs although its Jobs cannot be listed",
        _UNKNOWN,
        "trellis",
        "_unknown_state",
        "(unknown := snapshot.unknown(JOB))",
        "(unknown := snapshot.unknown())",
        _NODE,
    ),
    Break(
        "the health of a node is that of a row without what cannot be read",
        _UNKNOWN,
        "trellis",
        "_verdict",
        "if unknown is None:",
        "if chain:",
        _NODE,
    ),
    Break(
        "a node that waits for its Shims is in progress although Jobs cannot be listed",
        _UNKNOWN,
        "trellis",
        "_verdict",
        "if cause is not None and cause.rank is Rank.CAUSE else unknown.verdict",
        "if cause is not None else unknown.verdict",
        _NODE,
    ),
    Break(
        "a Shim selects no node although nodes cannot be listed",
        _UNKNOWN,
        "trellis",
        "_nodes",
        "and _NODE not in snapshot.unread",
        "",
        _SHIM,
    ),
    Break(
        "a deleted Shim is on no node although nodes cannot be listed",
        _UNKNOWN,
        "trellis",
        "_left",
        "if unknown := snapshot.unread.get(_NODE):",
        'if unknown := "":',
        _SHIM,
    ),
    Break(
        "Wasm pods that cannot be listed are absent",
        _UNKNOWN,
        "trellis",
        "_note_unread",
        "if not read.reading.knows(res):",
        "if not read.reading.knows(res) and part is not Part.PODS:",
        "tests/unit/wasm_pods/test_reading.py::test_a_row_has_the_reason_for_which_pods_are_unknown",
    ),
)

_HEALTH: Final = "tests/contract/test_health.py::test_a_node_has_one_health_and_reason_everywhere"

ENDED: Final = (
    Break(
        "a node for which there is nothing to install waits for a slot",
        "troubleshooting: all surfaces show the reason NothingToInstall",
        "trellis",
        "is_unserved",
        "return not kwasm",
        "return False",
        _HEALTH,
    ),
    Break(
        "another operator that was deleted is the cause for an hour",
        "troubleshooting: the first line has the present cause",
        "trellis",
        "_is_current",
        "return any(item.message == reason for item in stages.values())",
        "return True",
        _HEALTH,
    ),
    Break(
        "an Event from before the last failure is the cause",
        "troubleshooting: the first line has the present cause",
        "trellis",
        "since_outcome",
        "current = not at or at[: len(failed)] >= failed",
        "current = True",
        "tests/unit/read_model/test_explain_node.py::test_an_obstacle_before_the_last_failure_is_no_cause",
    ),
)
