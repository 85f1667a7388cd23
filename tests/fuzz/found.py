"""What fuzzing found, by target, each mended and held by a unit test; for people, in docs/reliability.md."""

from __future__ import annotations

from typing import Final

FOUND: Final[dict[str, tuple[str, ...]]] = {
    "dead-letters": (
        (
            "a stored message with words behind the version in its first header line made a letter that nobody could "
            "write: the name of that header was no key of JSON"
        ),
    ),
    "marks-on-nodes-and-jobs": (
        (
            "an annotation of a Node with `²` for the number of an attempt ended the reading of Nodes: `isdigit` is "
            "true of it, and `int` refuses it"
        ),
    ),
    "books-in-kubernetes": (
        "the rollout's ledger could not be read with such a digit, or one of thousands of digits, in it",
        "a tombstone of thousands of nested lists was an error",
        "a Service was believed to listen on whatever number its annotation had for a port",
    ),
    "custom-resources": (
        "an Application whose status had a win of neither side, or no digest, ended the reading of Applications",
        "a WasmController with a limit that is no quantity was refused without the field's name",
        "a WasmController whose status is nested too deep ended the reading of WasmControllers",
    ),
    "termination-messages": (
        "a pod's last words of thousands of nested lists, or with other types in it, were an error or believed",
        "a result with the path of a file whose name is no UTF-8 could not be written",
    ),
    "installer-wishes": (
        "a wish of thousands of nested lists was an error without a reason",
        "a wish without a handler took the Shim's name for one, also a name that no handler can have",
        "an option with half of a surrogate pair was taken, and could not be written",
        "a list for an architecture was an error without a reason",
    ),
    "installer-books": (
        (
            "the installer's state and journal were taken with any types in them; nested too deep they were an error "
            "without a reason, as was a refusal at a time of 400 digits"
        ),
    ),
    "containerd-configs": (
        "an option of thousands of nested lists or digits ended the installer without a reason",
        "an option that is a whole number of more than 64 bits was written as one, and containerd refuses that file",
        "an option `nan` was refused with the advice to write the file in another form",
        "a configuration nested too deep, or with thousands of digits, ended the installer without a reason",
    ),
    "import-patterns": (
        "a pattern of twenty stars kept the installer busy for ever",
        "a class with a dash at its end, which Go takes for malformed, matched",
    ),
    "wasm-modules": (
        "a module that is invalid by its start function was made a valid one, and that function was called",
    ),
    "shim-archives": ("a zip whose list leads before its beginning was taken for a fault of the node's disk",),
    "image-layers": ("a layer of thousands of headers about headers ended the fetch with the wrong error",),
    "image-references": (
        "a Docker configuration nested too deep was an error without a reason",
        (
            "a repository could have parts that are empty, `.` or `..`, and so be another repository's address, also "
            "with the login of the one that it was named after"
        ),
    ),
    "registries": (
        (
            "an index, a manifest or a token of another shape ended the installer without a reason, and a manifest "
            "controller_host too"
        ),
        "the installer followed an index to a manifest by a digest that it could not check",
    ),
    "kubernetes-answers": (
        "an error whose causes were no objects, or that said `Retry-After: ²`, was another error than the API server's",
    ),
    "cri-replies": ("a configuration of the runtime nested too deep was an error",),
    "curve-keys": ("an entry of the Secret that is no ASCII was an error without the entry's name",),
    "settings": ("an address with a password, in a list where no address belongs, was shown in the error",),
    "durations-counts-quantities": ("a duration of 400 digits was another error than that of a wrong duration",),
}
