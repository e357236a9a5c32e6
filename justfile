# Recipes of the project. `just --list` shows them; `just ci` is what CI runs.

set shell := ["bash", "-euo", "pipefail", "-c"]

features := "ipseity-server/failpoints"
geo_dir := "data"

# List the recipes.
default:
    @just --list --unsorted

# Start PostgreSQL, Redis and the service on free ports, with an account and a key for each scope; Ctrl-C removes all of it.
dev *arguments:
    @cargo build --quiet -p ipseity-server -p ipseity-testkit
    @target="${CARGO_TARGET_DIR:-target}"; exec "$target/debug/dev" {{ arguments }}

# All that CI checks.
ci: format-check lint deny docs test suites bench-budget interop geo-check (data-report "--short") quickstart (e2e "--short") samples clients (docs-check "--short") (lighthouse "--short") deploy-check (package-check "--short")

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
    cargo nextest run --workspace --features {{ features }} -E 'not (binary(blackbox) or binary(service))' {{ arguments }}

# The built binary, over real sockets, with its own PostgreSQL and Redis.
blackbox *arguments:
    cargo build --quiet --workspace --features {{ features }}
    cargo test --quiet --workspace --features {{ features }} --test blackbox -- {{ arguments }}

# The black-box suite and the short run of faults side by side: both mostly wait.
suites:
    cargo build --quiet --workspace --features {{ features }} --bins --tests
    log="$(mktemp)"; trap 'rm -f "$log"' EXIT; just faults --short > "$log" 2>&1 & faults=$!; \
    just blackbox && suite=0 || suite=1; wait $faults && broken=0 || broken=1; cat "$log"; exit $((suite + broken))

# Browser tests of the portal, with the keyboard only and without scripts; needs chromium. `--screenshots DIR` sets the folder for screenshots.
e2e *arguments:
    cargo build --quiet -p ipseity-server -p ipseity-testkit --features {{ features }}
    npm ci --silent --prefix tools/e2e
    pip install --quiet -r tools/e2e/requirements.txt
    node tools/e2e/run.mjs {{ arguments }}

# Every sample of the documentation whose language is on this machine, against the real service.
samples:
    cargo build --quiet --workspace --features {{ features }} --bins --example lookup
    npm ci --silent --prefix tools/e2e
    node tools/samples.mjs

# The TypeScript and the Rust client, against the real service.
clients:
    cargo test --quiet --workspace --features {{ features }} --doc
    cargo build --quiet --workspace --features {{ features }} --bins
    cargo test --quiet --workspace --features {{ features }} --test service
    npm ci --silent --prefix tools/e2e
    npm ci --silent --prefix clients/typescript
    cd clients/typescript && npm run --silent build && npm run --silent size && npm test --silent

# The OpenAPI document and its examples, the service by that document (schemathesis), and every link; `--short` tries fewer cases.
docs-check *arguments:
    cargo build --quiet -p ipseity-server -p ipseity-testkit --features {{ features }}
    npm ci --silent --prefix tools/docs
    pip install --quiet -r tools/docs/requirements.txt
    python3 tools/docs/check.py {{ arguments }}

# Rate landing page, documentation, reference and keys page with Lighthouse; needs chromium.
lighthouse *arguments:
    cargo build --quiet -p ipseity-server -p ipseity-testkit --features {{ features }}
    npm ci --silent --prefix tools/lighthouse
    node tools/lighthouse/run.mjs {{ arguments }}

# Draw the landing page's map, the social card and the icon anew.
draw:
    npm ci --silent --prefix tools/art
    node tools/art/draw.mjs > crates/portal/assets/world.tsv
    node tools/art/card.mjs

# Random steps against the real script and a model of the specification.
model steps="1000000":
    IPSEITY_MODEL_STEPS={{ steps }} cargo nextest run --workspace --features {{ features }} --no-capture -E 'test(never_differ)'

# Fetch GeoLite2 City and ASN for development (their licence forbids passing them on).
geo-data:
    python3 tools/fetch_geo.py {{ geo_dir }}

# Every geo field of random addresses against an independent reader.
geo-check count="10000" seed="1": geo-data
    pip install --quiet -r tools/requirements.txt
    python3 tools/check_geo.py --city {{ geo_dir }}/GeoLite2-City.mmdb --asn {{ geo_dir }}/GeoLite2-ASN.mmdb --count {{ count }} --seed {{ seed }}

# Every figure about the data with its bar, in one table; `--lists DIR` adds public AS lists to measure the classification against.
data-report *arguments: geo-data
    pip install --quiet -r tools/requirements.txt
    python3 tools/data_report.py --dir {{ geo_dir }} {{ arguments }}

# Feed arbitrary bytes to all that reads a stranger's, and to the reader of geo databases; needs a nightly toolchain and cargo-fuzz.
fuzz seconds="600":
    cargo run --quiet -p ipseity-geo --example fuzz_seeds -- crates/geo/fuzz/corpus/database
    cd crates/geo && cargo +nightly fuzz run database -- -max_total_time={{ seconds }} -rss_limit_mb=512 -timeout=10
    for target in key authorization x_forwarded_for forwarded proxy_header accept; do \
        mkdir -p fuzz/corpus/$target && \
        cargo +nightly fuzz run --fuzz-dir fuzz $target fuzz/corpus/$target fuzz/seeds/$target -- -max_total_time={{ seconds }} -rss_limit_mb=1024 -timeout=30; \
    done

# The edge: spoofing vectors; the table of protocols, sessions, proxies and address families with real nginx and haproxy; the restarts and the certificates.
edge: && restarts certificates
    cargo nextest run -p ipseity-edge
    cargo build --quiet -p ipseity-server -p ipseity-testkit --features {{ features }}
    cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- --nocapture prox http3 rtt

# Attacks on a release build while an honest caller measures, each for so long; needs slowhttptest, and a machine with nothing else to do. `attacks` picks some: "default limits: slow,256 files".
abuse seconds="30" attacks="":
    cargo build --quiet --release -p ipseity-server
    cargo build --quiet --release -p ipseity-testkit --bin attack
    IPSEITY_BIN="$(realpath "${CARGO_TARGET_DIR:-target}")/release/ipseity" IPSEITY_ABUSE_S={{ seconds }} IPSEITY_ABUSE={{ quote(attacks) }} \
        cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- --nocapture abuse

# Break stores, lines and nodes under load and hold the books against what callers were told: 210 seeded runs over 31 kinds of fault, then
# five outages of a minute; `--short` runs each kind once on a debug build, `--seeds N`, `--seed N`,
# `--only NAME`, `--runs` and `--outages` choose.
faults *arguments:
    cargo build --quiet -p ipseity-testkit
    target="$(realpath "${CARGO_TARGET_DIR:-target}")"; \
    if [[ " {{ arguments }} " == *" --short "* ]]; then \
        cargo build --quiet -p ipseity-server --features {{ features }}; program="$target/debug/ipseity"; \
    else \
        cargo build --quiet --release -p ipseity-server; program="$target/release/ipseity"; \
    fi; \
    IPSEITY_BIN="$program" "$target/debug/faults" {{ arguments }}

# What a request costs beside servers that do less, in one table: CPU time of each process, rates, latencies, and the bars that the service wants to
# be held to; needs wrk, h2load, nginx with its geoip2 module, valgrind, and a machine with nothing else to do. Writes docs/bench.*; `--short` writes
# nothing and takes two minutes.
bench *arguments: geo-data
    cargo build --quiet --release -p ipseity-server
    cargo build --quiet --release -p ipseity-bench
    target="${CARGO_TARGET_DIR:-target}"; "$target/release/bench" compare {{ arguments }}

# The tie-breaker alone: instructions for each request, by callgrind, which a busy machine does not change. Takes two minutes and writes nothing.
bench-instructions: geo-data
    cargo build --quiet --release -p ipseity-server
    cargo build --quiet --release -p ipseity-bench
    target="${CARGO_TARGET_DIR:-target}"; "$target/release/bench" instructions

# How the costs grow: with the number of keys up to a million, with a cluster of counter stores, with more nodes; and what a key takes in memory. Takes
# some 15 minutes and writes docs/scale.*; `--short` has fewer keys and writes nothing.
scale *arguments: geo-data
    cargo build --quiet --release -p ipseity-server
    cargo build --quiet --release -p ipseity-bench
    target="${CARGO_TARGET_DIR:-target}"; "$target/release/bench" scale {{ arguments }}

# The short form for CI, with whatever is built: what a request costs in relation to bare servers of the same build, and 1 beyond the budget.
bench-budget:
    cargo build --quiet --workspace --features {{ features }} --bins
    target="${CARGO_TARGET_DIR:-target}"; "$target/debug/bench" budget

# The privacy proof, in so many rounds: canaries through every route, protocol, error, panic, timeout and outage, then a search of all that was written.
privacy rounds="10":
    cargo build --quiet --workspace --features {{ features }}
    tools/privacy.sh {{ rounds }}

# Swap geo editions under load: 100 swaps, 2,000 requests a second, 30 seconds, with a release build.
geo-reload:
    cargo build --quiet --release -p ipseity-server
    IPSEITY_BIN="$(realpath "${CARGO_TARGET_DIR:-target}")/release/ipseity" IPSEITY_RELOADS=100 IPSEITY_RELOAD_RATE=2000 IPSEITY_RELOAD_S=30 \
        cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- --nocapture geo_reload

# Replace nodes by take-over under load: 20 restarts, 1,000 requests a second, 220 seconds, with a release build; by inherited sockets, then by SO_REUSEPORT.
restarts count="20" rate="1000" seconds="220":
    cargo build --quiet --release -p ipseity-server
    IPSEITY_BIN="$(realpath "${CARGO_TARGET_DIR:-target}")/release/ipseity" IPSEITY_RESTARTS={{ count }} IPSEITY_RESTART_RATE={{ rate }} IPSEITY_RESTART_S={{ seconds }} \
        cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- --nocapture --test-threads 1 restarts

# What `ipseity doctor` says of more than thirty set-ups that are broken in one way each, and of a sound one.
doctor-check:
    cargo build --quiet -p ipseity-server -p ipseity-testkit --features {{ features }}
    cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- --nocapture doctor

# Alerts and dashboard: unit tests of every alert, then a real Prometheus on a real node: every query finds data, alerts fire by their causes alone.
alerts-check:
    cargo build --quiet -p ipseity-server -p ipseity-testkit --features {{ features }}
    cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- --nocapture alerts

# Take the help pages over as they are now, after they were read.
help-pages:
    cargo build --quiet -p ipseity-server -p ipseity-testkit --features {{ features }}
    IPSEITY_HELP=write cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- help_pages_match
    git diff --stat crates/server/tests/blackbox/help.txt

# Live through so many days with so many keys, by one clock for both stores and a node: what is past its time goes, and nothing grows without bound.
retention-check count="400" keys="1000":
    cargo build --quiet -p ipseity-server -p ipseity-testkit --features {{ features }}
    IPSEITY_DAYS={{ count }} IPSEITY_DAYS_KEYS={{ keys }} cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- --nocapture storage_does_not_grow

# Replace the certificate of a running node under load, 50 times.
certificates count="50":
    cargo build --quiet --release -p ipseity-server
    IPSEITY_BIN="$(realpath "${CARGO_TARGET_DIR:-target}")/release/ipseity" IPSEITY_CERTIFICATES={{ count }} \
        cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- --nocapture certificates

# Ask over HTTP/3 with aioquic, which shares nothing with the service's own stack.
interop:
    cargo build --quiet -p ipseity-server -p ipseity-testkit
    pip install --quiet -r tools/requirements.txt
    python3 tools/h3_interop.py

# Rate TLS with testssl.sh, which takes some minutes.
testssl:
    cargo build --quiet -p ipseity-server -p ipseity-testkit
    tools/testssl.sh

# Flood the door beside steady lookups: 200 sign-ins a second for 20 seconds, with a release build.
signin-flood:
    cargo build --quiet --release -p ipseity-server
    IPSEITY_BIN="$(realpath "${CARGO_TARGET_DIR:-target}")/release/ipseity" IPSEITY_SIGNIN_S=20 \
        cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- --nocapture portal::signin_flood

# What a release build with GeoLite2 City and ASN weighs, at rest and during a swap, and how soon it is ready.
geo-memory: geo-data
    cargo build --quiet --release -p ipseity-server
    IPSEITY_BIN="$(realpath "${CARGO_TARGET_DIR:-target}")/release/ipseity" IPSEITY_GEO_DIR="$(realpath {{ geo_dir }})" \
        cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- --nocapture geo_memory

# Make the Debian package of the release build; needs cargo-deb.
package:
    cargo build --quiet --release -p ipseity-server
    target="${CARGO_TARGET_DIR:-target}"; tools/package/build.sh "$target/release/ipseity" "$target/debian/ipseity.deb"

# Install, upgrade and purge the package on a fresh Debian under its own systemd, and get a first answer; needs root, cargo-deb and
# mmdebstrap. `--short` takes this machine's system for the fresh one and a debug build; `--program FILE` packs a program that is built already;
# `--suite NAME` takes another Debian than bookworm.
package-check *arguments:
    tools/package/run.sh {{ arguments }}

# The ledger's suite and what survives a loss, with Valkey in place of Redis; needs valkey-server.
valkey program="valkey-server":
    cargo build --quiet --workspace --features {{ features }} --bins --tests
    export IPSEITY_REDIS_BIN="$(command -v {{ program }})"; \
        cargo nextest run -p ipseity-ledger && \
        cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- durability race cluster limits lifecycle

# Hold the files of deploy/ and the workflows to their schemas and linters, and their settings to default.toml.
deploy-check:
    pip install --quiet -r tools/deploy/requirements.txt
    python3 tools/deploy/check.py

# Back up and restore, upgrade and roll back beside the version `old`, move Redis, all under load; then 400 days.
lifecycle old="fdd0792" seconds="5": && retention-check
    old="$(tools/old_version.sh {{ old }})"; cargo build --quiet --workspace --features {{ features }} --bins --tests; \
    IPSEITY_OLD_BIN="$old" IPSEITY_LIFECYCLE_S={{ seconds }} \
        cargo test --quiet -p ipseity-server --features {{ features }} --test blackbox -- --nocapture --test-threads 1 lifecycle

# Generate the tables of currencies, regions and time zones from their sources.
tables:
    pip install --quiet -r tools/requirements.txt
    python3 tools/tables.py

# Run README's quick start as written, in a clean clone.
quickstart:
    tools/quickstart.sh
