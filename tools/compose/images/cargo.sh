#!/bin/sh
exec install -D /program "$CARGO_TARGET_DIR/release/ipseity"
