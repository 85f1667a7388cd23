"""Defects that fuzzing found, by target; each is fixed and has a unit test. Shown in docs/reliability.md."""

from __future__ import annotations

from typing import Final

FOUND: Final[dict[str, tuple[str, ...]]] = {
    "dead-letters": (
        (
            "a stored message with text after the version in its first header line became an unserializable dead "
            "letter: the name of that header was not a JSON key"
        ),
    ),
    "applications-for-v2": (
        "a password in the settings of a provider that calls a component was in no line of the report",
        "an unknown annotation of Trellis was in no object and in no line of the report",
        "a key with thousands of digits in its path could not be sorted",
    ),
    "marks-on-nodes-and-jobs": (
        (
            "an annotation of a Node with `²` as the number of an attempt stopped the informer of Nodes: `isdigit` "
            "accepts it, and `int` raises an error"
        ),
    ),
    "books-in-kubernetes": (
        "the rollout ledger could not be parsed with `²` as a digit, or with a number of thousands of digits",
        "a tombstone of thousands of nested lists caused an error",
        "any number in the annotation of a Service was accepted as its port",
    ),
    "custom-resources": (
        (
            "an Application whose status had a winner other than the two sides, or no digest, stopped the informer of "
            "Applications"
        ),
        "a WasmController with a limit that is not a quantity was refused without the name of the field",
        "a WasmController with too many nesting levels in its status stopped the informer of WasmControllers",
    ),
    "termination-messages": (
        "a termination message of thousands of nested lists, or with other types, caused an error or was accepted",
        "a result with a file name that is not UTF-8 could not be serialized",
    ),
    "installer-specs": (
        "a specification of thousands of nested lists caused an error without a reason",
        "a specification without a handler used the name of the Shim, even if it is not valid for a handler",
        "an option with half of a surrogate pair was accepted, and could not be serialized",
        "a list as the value of an architecture caused an error without a reason",
    ),
    "installer-books": (
        (
            "state and journal of the installer were accepted with any types; too many nesting levels caused an error "
            "without a reason, as did a refusal with a time of 400 digits"
        ),
    ),
    "containerd-configs": (
        "an option of thousands of nested lists or digits ended the installer without a reason",
        "an integer option of more than 64 bits was written, and containerd rejects that file",
        "an option `nan` was refused with the advice to change the format of the file",
        "a configuration with too many nesting levels, or thousands of digits, ended the installer without a reason",
    ),
    "import-patterns": (
        "a pattern of twenty stars blocked the installer permanently",
        "a character class with a dash at its end, which Go rejects as malformed, matched",
    ),
    "wasm-modules": ("a module with an invalid start function became valid, and that function was called",),
    "shim-archives": (
        "a zip file with a directory offset before its beginning was reported as a disk error of the node",
    ),
    "image-layers": ("a layer of thousands of nested extended headers ended the fetch with the wrong error",),
    "image-references": (
        "a Docker configuration with too many nesting levels caused an error without a reason",
        (
            "a repository could have parts that are empty, `.` or `..`, and so address another repository, with the "
            "login of the named one"
        ),
    ),
    "registries": (
        (
            "an index, a manifest or a token with another schema ended the installer without a reason; a manifest also "
            "ended controller_host"
        ),
        "the installer followed an index to a manifest by a digest that it could not verify",
    ),
    "kubernetes-answers": (
        (
            "an error whose causes were not objects, or with `Retry-After: ²`, was not reported as the error of the "
            "API server"
        ),
    ),
    "cri-replies": ("a configuration of the runtime with too many nesting levels caused an error",),
    "curve-keys": ("an entry of the Secret that is not ASCII caused an error without the name of the entry",),
    "settings": ("an address with a password, in a list of other values, was shown in the error",),
    "durations-counts-quantities": ("a duration of 400 digits did not cause the error of an invalid duration",),
}
