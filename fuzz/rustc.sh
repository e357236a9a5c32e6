#!/usr/bin/env bash
# Calls rustc with the coverage that libFuzzer needs, which a stable compiler supports. Cargo calls it for the crates of this
# project (RUSTC_WORKSPACE_WRAPPER).
case " $* " in
    *" --crate-name build_script_"* | *" --crate-type proc-macro "* | *" --crate-name ___ "*) exec "$@" ;;
esac
exec "$@" -Copt-level=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
