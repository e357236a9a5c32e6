#!/usr/bin/env bash
# Builds the last commit twice, in different directories, with different Cargo homes and time zones, and compares the programs.
set -euo pipefail
source=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
cargo_home=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset CARGO_TARGET_DIR SOURCE_DATE_EPOCH
TIMEFORMAT='built in %0R s, with %0U s of CPU time'

build() { # build NAME TIME_ZONE
    echo "build in $dir/$1"
    mkdir -p "$dir/$1/cargo"
    # Other paths to the same downloads.
    ln -s "$cargo_home"/* "$dir/$1/cargo/"
    git clone --quiet "$source" "$dir/$1/ipseity"
    time CARGO_HOME=$dir/$1/cargo TZ=$2 "$dir/$1/ipseity/tools/release/build.sh" "$dir/$1/program"
    # Only the program is needed.
    rm -rf "$dir/$1/ipseity/target"
}
build first UTC
build a-second-and/longer-path Pacific/Kiritimati
python3 "$source/tools/release/compare.py" "$dir/first/program" "$dir/a-second-and/longer-path/program"
