# Recipes of the project. `just --list` shows them; `just ci` is what CI runs.

set shell := ["bash", "-euo", "pipefail", "-c"]

features := "server/failpoints"
geo_dir := "data"

# List the recipes.
default:
    @just --list --unsorted

# Start PostgreSQL, Redis and the service on free ports, with an account and a key for each scope; Ctrl-C removes all of it.
dev *arguments:
    @cargo build --quiet -p server -p testkit
    @target="${CARGO_TARGET_DIR:-target}"; exec "$target/debug/dev" {{ arguments }}

# All that CI checks.
ci: format-check lint deny docs test blackbox real-data quickstart

format-check:
    cargo fmt --all --check

lint:
    cargo clippy --workspace --all-targets --features {{ features }} -- -D warnings

# Licences, sources, version floors, and which crate may use which.
deny:
    cargo deny check bans licenses sources

# Known vulnerabilities; needs the advisory database from the network.
advisories:
    cargo deny check advisories

docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --features {{ features }}

# Unit tests, and each lower crate against the real system behind its door.
test *arguments:
    cargo nextest run --workspace --features {{ features }} -E 'not binary(blackbox)' {{ arguments }}

# The built binary, over real sockets, with its own PostgreSQL and Redis.
blackbox *arguments:
    cargo build --quiet --workspace --features {{ features }}
    cargo test --quiet --workspace --features {{ features }} --test blackbox -- {{ arguments }}

# Random steps against the real script and a model of the specification.
model steps="1000000":
    IPSEITY_MODEL_STEPS={{ steps }} cargo nextest run --workspace --features {{ features }} --no-capture -E 'test(never_differ)'

# Fetch GeoLite2 City and ASN for development (their licence forbids passing them on).
geo-data:
    python3 tools/fetch_geo.py {{ geo_dir }}

# Every geo field of random addresses against an independent reader.
real-data count="10000" seed="1": geo-data
    pip install --quiet -r tools/requirements.txt
    python3 tools/check_geo.py --city {{ geo_dir }}/GeoLite2-City.mmdb --asn {{ geo_dir }}/GeoLite2-ASN.mmdb --count {{ count }} --seed {{ seed }}

# Generate the tables of currencies, regions and time zones from their sources.
tables:
    pip install --quiet -r tools/requirements.txt
    python3 tools/tables.py

# Run README's quick start as written, in a clean clone.
quickstart:
    tools/quickstart.sh
