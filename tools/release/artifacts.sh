#!/usr/bin/env bash
# artifacts.sh PROGRAM DIR: writes the files of a release for this architecture: package, archive and SBOM. Needs cargo-deb and
# cargo-cyclonedx.
set -euo pipefail
program=$(realpath "$1")
dir=$(realpath --canonicalize-missing "$2")
cd "$(dirname "$0")/../.."
version=$(tools/release/version.sh)
architecture=$(dpkg --print-architecture)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
staged=$(mktemp -d)
trap 'rm -rf "$staged"; rm -f clients/*/ipseity.cdx.json crates/*/ipseity.cdx.json fuzz/ipseity.cdx.json' EXIT
mkdir -p "$dir"

package=$dir/ipseity_$version-1_$architecture.deb
tools/package/build.sh "$program" "$package"

# For systems without dpkg: the files of the package.
dpkg-deb --extract "$package" "$staged/ipseity-$version"
# Without the names, times and owners of this machine, so that two builds have the same bytes.
tar --create --directory "$staged" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner "ipseity-$version" |
    gzip --no-name --best >"$dir/ipseity-$version-linux-$architecture.tar.gz"

# The tool writes next to the manifest of every crate.
cargo cyclonedx --quiet --format json --override-filename ipseity.cdx --manifest-path crates/server/Cargo.toml
python3 tools/release/prune_sbom.py crates/server/ipseity.cdx.json "$dir/ipseity_$architecture.cdx.json"
