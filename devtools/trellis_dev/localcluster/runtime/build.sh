#!/bin/sh
# Builds the runtime from crates, statically linked, so that it runs on nodes of any distribution.
#
# In: this Cargo project in the working directory, which is changed; OUT as the argument. Needs cargo, a C compiler,
# protoc, and libseccomp.a in LIBSECCOMP_LIB_PATH (by default in Debian's directory). TRIPLE: the target, this machine by
# default; TARGET_CC: its C compiler, cc by default. Out: in OUT the program, crates.lock, the metadata of its crates, their
# licences, and the versions of the C libraries that are linked in. Called by the Dockerfile of the installer and by
# wasmshim.py.
# The crates are those of crates.lock, by checksum. The address of their registry is that of the local configuration of
# cargo, as it writes it for a project with any crate.
set -eu
out=$1
: "${TRIPLE:=$(uname -m)-unknown-linux-gnu}"
: "${LIBSECCOMP_LIB_PATH:=/usr/lib/${TRIPLE%%-*}-linux-gnu}"
export LIBSECCOMP_LIB_PATH LIBSECCOMP_LINK_TYPE=static
# The same crates give the same bytes in every directory.
export RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$PWD=/runtime --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"

mkdir -p probe/src
: >probe/src/lib.rs
printf '[package]\nname = "probe"\nversion = "0.0.0"\n\n[workspace]\n\n[dependencies]\nanyhow = "1"\n' >probe/Cargo.toml
cargo generate-lockfile --manifest-path probe/Cargo.toml
registry=$(sed -n '/^source = /{p;q;}' probe/Cargo.lock)
rm -r probe
sed "s|^checksum = |$registry\\nchecksum = |" crates.lock >Cargo.lock

cargo build --locked --release --target "$TRIPLE"
mkdir -p "$out"
cp "target/$TRIPLE/release/containerd-shim-wasi-v1" crates.lock "$out"
cargo metadata --locked --format-version 1 --filter-platform "$TRIPLE" >"$out/metadata.json"
{
    sed -n 's/^Version: /libseccomp /p' "$LIBSECCOMP_LIB_PATH/pkgconfig/libseccomp.pc"
    printf '#include <features.h>\nlibc __GLIBC__ __GLIBC_MINOR__\n' | "${TARGET_CC:-cc}" -E -P - \
        | sed -n 's/^libc \([0-9]*\) \([0-9]*\)$/glibc \1.\2/p'
} >"$out/libraries.txt"
cargo vendor --locked --quiet --versioned-dirs crates >/dev/null
for file in crates/*/LICEN[CS]E* crates/*/COPYING* crates/*/COPYRIGHT* crates/*/NOTICE* crates/*/UNLICENSE*; do
    [ -f "$file" ] || continue
    mkdir -p "$out/licenses/$(basename "$(dirname "$file")")"
    cp "$file" "$out/licenses/$(basename "$(dirname "$file")")"
done
