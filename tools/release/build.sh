#!/usr/bin/env bash
# build.sh FILE: builds the program of a release, without debug information. The same commit, compilers and architecture give
# the same bytes in any directory, at any time.
set -euo pipefail
file=$(realpath --canonicalize-missing "$1")
cd "$(dirname "$0")/../.."
export CARGO_TARGET_DIR
CARGO_TARGET_DIR=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")/dist
mkdir -p "$CARGO_TARGET_DIR" "$(dirname "$file")"

# C code can contain the time of its compilation. Outside of a repository, such as in a container, pass the time of the commit.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export LC_ALL=C TZ=UTC CARGO_INCREMENTAL=0

# Messages of panics and C code contain the paths of source files. If several prefixes match, the last one counts.
flags=() c_flags=''
for map in "$PWD=/source" "$CARGO_TARGET_DIR=/target" "$(realpath --no-symlinks "${CARGO_HOME:-$HOME/.cargo}")=/cargo"; do
    flags+=("--remap-path-prefix=$map")
    c_flags+=" -ffile-prefix-map=$map"
done
# Replaces flags of the environment and of Cargo's configuration, which can differ between machines.
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}")
export CARGO_ENCODED_RUSTFLAGS CFLAGS=$c_flags CXXFLAGS=$c_flags

# The linker removes symbols: the build ID is a hash of what it writes, and symbols differ between directories.
cargo build --quiet --release --locked -p ipseity-server \
    --config profile.release.debug=false --config 'profile.release.strip="symbols"'
install "$CARGO_TARGET_DIR/release/ipseity" "$file"
