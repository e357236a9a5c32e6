# Recipes of the project. `just --list` shows them in groups; CONTRIBUTING.md explains the everyday ones.

set shell := ["bash", "-euo", "pipefail", "-c"]

# Every debug build uses the same packages and features, so that nothing is compiled twice.
build_flags := "--workspace --features ipseity-server/failpoints"
blackbox_flags := build_flags + " --test blackbox"
# Tests of the built service mostly wait for processes.
export RUST_TEST_THREADS := env("RUST_TEST_THREADS", `echo $(($(nproc) * 3 / 2))`)
target := env("CARGO_TARGET_DIR", justfile_directory() / "target")
release_bin := target / "release/ipseity"
dist_bin := target / "dist/ipseity"
geo_dir := "data"

# List the recipes.
[private]
default:
    @just --list --unsorted

# Start PostgreSQL, Redis and the service on free ports, with an account and a key for each scope. Ctrl-C removes everything.
[group('everyday')]
dev *arguments: build
    @exec "{{ target }}/debug/dev" {{ arguments }}

# Format the code and apply the fixes that clippy suggests.
[group('everyday')]
fix:
    cargo clippy {{ build_flags }} --all-targets --fix --allow-dirty --allow-staged --quiet
    cargo fmt --all

# Run unit and crate tests. Arguments go to nextest: `just test burst` runs the tests with "burst" in their names.
[group('everyday')]
test *arguments:
    cargo nextest run {{ build_flags }} -E 'not (binary(blackbox) or binary(service))' {{ arguments }}

# Run the black-box suite against the built binary. Arguments filter test names: `just blackbox limits`.
[group('everyday')]
blackbox *arguments: build
    cargo test --quiet {{ blackbox_flags }} -- {{ arguments }}

# Fast lane of CI: format, clippy, unit and crate tests. The profile `unprivileged` skips tests that create namespaces.
[group('everyday')]
check profile="ci": format-check lint (test "--profile" profile)

# The quick start is last, because it builds its clone into the same folder.
# Full lane of CI.
[group('everyday')]
ci: check deny docs suites (fuzz "4") bench-budget interop geo-check (data-report "--short") (e2e "--short") samples clients oidc (docs-check "--short") (lighthouse "--short") deploy-check (package-check "--short") quickstart

# Build all programs.
[group('ci steps')]
build:
    @cargo build --quiet {{ build_flags }} --bins

# Check the format of all Rust code.
[group('ci steps')]
format-check:
    cargo fmt --all --check

# Run clippy; warnings are errors.
[group('ci steps')]
lint:
    cargo clippy {{ build_flags }} --all-targets -- -D warnings

# Check licenses, sources, versions, and which crate may depend on which.
[group('ci steps')]
deny:
    cargo deny check bans licenses sources

# Check for known vulnerabilities; needs the advisory database from the network.
[group('ci steps')]
advisories:
    cargo deny check advisories

# Build the API documentation of all crates; warnings are errors.
[group('ci steps')]
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc {{ build_flags }} --no-deps --document-private-items

# Run the black-box suite in parallel with the short fault runs and three mutants: all mostly wait.
[group('ci steps')]
suites:
    cargo build --quiet {{ build_flags }} --bins --tests
    log="$(mktemp)"; trap 'rm -f "$log"' EXIT; (just faults --short && just mutants --short) > "$log" 2>&1 & faults=$!; \
    just blackbox && suite=0 || suite=1; wait $faults && broken=0 || broken=1; cat "$log"; exit $((suite + broken))

# Run README's quick start as written, in a clean clone.
[group('ci steps')]
quickstart:
    tools/quickstart.sh

# Walk through the portal in a browser, by keyboard alone and without scripts; needs chromium. `--screenshots DIR` saves screenshots.
[group('portal and docs')]
e2e *arguments: build
    npm ci --silent --prefix tools/e2e
    npm ci --silent --prefix tools/oidc
    pip install --quiet -r tools/e2e/requirements.txt
    node tools/e2e/run.mjs {{ arguments }}

# Check keys and tickets of web pages in a second browser engine; needs firefox-esr.
[group('portal and docs')]
e2e-firefox: build
    npm ci --silent --prefix tools/e2e
    pip install --quiet -r tools/e2e/requirements.txt
    node tools/e2e/firefox.mjs

# Check the OpenAPI document, the service against it (schemathesis), and every link. `--short` tries fewer cases.
[group('portal and docs')]
docs-check *arguments: build
    npm ci --silent --prefix tools/docs
    pip install --quiet -r tools/docs/requirements.txt
    python3 tools/docs/check.py {{ arguments }}

# Rate public pages and pages of members with Lighthouse; `--short` rates fewer; needs chromium.
[group('portal and docs')]
lighthouse *arguments: build
    npm ci --silent --prefix tools/lighthouse
    node tools/lighthouse/run.mjs {{ arguments }}

# Run every code sample of the documentation that has an installed runtime.
[group('portal and docs')]
samples:
    cargo build --quiet {{ build_flags }} --bins --example lookup --example first_request
    npm ci --silent --prefix tools/e2e
    node tools/samples.mjs

# Test sign-in with OpenID Connect against an independent provider; needs npm.
[group('portal and docs')]
oidc: build
    npm ci --silent --prefix tools/oidc
    node tools/oidc/provider.mjs cargo nextest run {{ build_flags }} -E 'package(ipseity-portal) and test(real_provider)'
    node tools/oidc/provider.mjs cargo test --quiet {{ blackbox_flags }} -- real_provider

# Test the TypeScript and the Rust client against the service.
[group('portal and docs')]
clients: build
    cargo test --quiet {{ build_flags }} --doc
    cargo test --quiet {{ build_flags }} --test service
    npm ci --silent --prefix tools/e2e
    npm ci --silent --prefix clients/typescript
    cd clients/typescript && npm run --silent build && npm run --silent size && npm test --silent

# 390 seeded runs of 78 faults, a third with two faults, then six outages of a minute. `--short` runs a choice of
# faults once on a debug build. `--seed N` continues, `--seed N --only NAME --seeds 1` repeats, `--parallel N`,
# `--runs` and `--outages` select, `--logs DIR` keeps the history of what failed.
# Break servers, connections and nodes under load and key changes, and check the history of every run.
[group('faults and attacks')]
faults *arguments: build
    if [[ " {{ arguments }} " == *" --short "* ]]; then program="{{ target }}/debug/ipseity"; \
    else cargo build --quiet --release -p ipseity-server; program="{{ release_bin }}"; fi; \
    IPSEITY_BIN="$(realpath "$program")" "{{ target }}/debug/faults" {{ arguments }}

# Switch on one known defect at a time and check that a test or a fault run finds it. `--only NAME` selects; `--short` runs three.
[group('faults and attacks')]
mutants *arguments: build
    "{{ target }}/debug/mutants" {{ arguments }}

# Attack a release build while a well-behaved caller measures; needs slowhttptest and an idle machine. `attacks` selects.
[group('faults and attacks')]
abuse seconds="30" attacks="": build release
    cargo build --quiet --release -p ipseity-testkit --bin attack
    IPSEITY_BIN="$(realpath "{{ release_bin }}")" IPSEITY_ABUSE_S={{ seconds }} IPSEITY_ABUSE={{ quote(attacks) }} \
        cargo test --quiet {{ blackbox_flags }} -- --nocapture abuse

# Compare random steps of the ledger's scripts with a model of the specification.
[group('faults and attacks')]
model steps="1000000":
    IPSEITY_MODEL_STEPS={{ steps }} cargo nextest run {{ build_flags }} --no-capture -E 'test(never_differ)'

# Search everything that a deployment wrote for canaries sent through every route, protocol, error, panic and outage.
[group('faults and attacks')]
privacy rounds="10": build
    tools/privacy.sh {{ rounds }}

# The admin console with 100,000 accounts and a million keys, with a release build: pages below 50 ms, search below 100 ms.
# Takes about 5 minutes.
[group('measurements')]
console-size: build release
    IPSEITY_BIN="$(realpath "{{ release_bin }}")" IPSEITY_CONSOLE_ACCOUNTS=100000 IPSEITY_CONSOLE_PAGE_MS=50 \
        IPSEITY_CONSOLE_SEARCH_MS=100 \
        cargo test --quiet {{ blackbox_flags }} -- --nocapture --test-threads 1 console::performance

# Pages of an account with ten keys that have usage and rejections on each of 400 days, next to 10,000 accounts with 100,000 keys, with
# a release build: medians below 30 ms. Takes 5 minutes and 12 GB of disk. `reasons` says for how many reasons each key has
# rejections on a day; with all six, 400 days take 60 ms.
[group('measurements')]
portal-size reasons="1": build release
    IPSEITY_BIN="$(realpath "{{ release_bin }}")" IPSEITY_PAGE_ACCOUNTS=10000 IPSEITY_PAGE_REASONS={{ reasons }} IPSEITY_PAGE_MS=30 \
        cargo test --quiet {{ blackbox_flags }} -- --nocapture --test-threads 1 portal::page_performance

# Keys in web pages at full size, with a release build: 1,000 changes of restrictions on three nodes and on remote nodes, floods of
# 5,000 requests, a minute of refusals, 10,003 pairs, a million forged tokens. Takes about 20 minutes.
[group('faults and attacks')]
web-keys: build release
    IPSEITY_FORGERIES=1000000 cargo nextest run {{ build_flags }} -E 'package(ipseity-api) and test(forged)'
    IPSEITY_BIN="$(realpath "{{ release_bin }}")" IPSEITY_RESTRICTION_CHANGES=1000 IPSEITY_RESTRICTION_FLOOD=4998 \
        IPSEITY_RESTRICTION_SECONDS=60 IPSEITY_PAIRS=10003 IPSEITY_SITES_NOTICE_MS=50 \
        cargo test --quiet {{ blackbox_flags }} -- --nocapture --test-threads 1 restrictions:: tickets:: pairing

# 10,000 alerts of 100 keys to a receiver that fails, hangs, redirects and is slow, while two of three nodes are killed in turns,
# with a release build. Takes about 10 minutes.
[group('faults and attacks')]
webhooks: build release
    IPSEITY_BIN="$(realpath "{{ release_bin }}")" IPSEITY_WEBHOOK_EVENTS=10000 IPSEITY_WEBHOOK_KEYS=100 \
        cargo test --quiet {{ blackbox_flags }} -- --nocapture --test-threads 1 webhooks::every_alert

# Fuzz every parser of untrusted input for `seconds` each, or the named targets; needs a C++ compiler.
[group('faults and attacks')]
fuzz seconds="600" *targets:
    fuzz/run.sh {{ seconds }} {{ targets }}

# Generate the seeds of the fuzz target for geo databases.
[group('generated files')]
fuzz-seeds:
    cargo build --quiet {{ build_flags }} --example fuzz_seeds
    "{{ target }}/debug/examples/fuzz_seeds" fuzz/seeds/database

# Flood sign-in during steady lookups: 200 sign-ins per second for 20 seconds, with a release build.
[group('faults and attacks')]
signin-flood: build release
    IPSEITY_BIN="$(realpath "{{ release_bin }}")" IPSEITY_SIGNIN_S=20 \
        cargo test --quiet {{ blackbox_flags }} -- --nocapture portal::signin_flood

# Test the edge: spoofing vectors; protocols, sessions, proxies and address families with nginx and haproxy; restarts; certificates.
[group('edge')]
edge: build && restarts certificates
    cargo nextest run -p ipseity-edge
    cargo test --quiet {{ blackbox_flags }} -- --nocapture prox http3 rtt

# Replace nodes under load: 20 restarts at 1,000 requests per second, with inherited sockets and with SO_REUSEPORT.
[group('edge')]
restarts count="20" rate="1000" seconds="220": build release
    IPSEITY_BIN="$(realpath "{{ release_bin }}")" IPSEITY_RESTARTS={{ count }} IPSEITY_RESTART_RATE={{ rate }} IPSEITY_RESTART_S={{ seconds }} \
        cargo test --quiet {{ blackbox_flags }} -- --nocapture --test-threads 1 restarts

# Replace the certificate of a running node under load, 50 times.
[group('edge')]
certificates count="50": build release
    IPSEITY_BIN="$(realpath "{{ release_bin }}")" IPSEITY_CERTIFICATES={{ count }} \
        cargo test --quiet {{ blackbox_flags }} -- --nocapture certificates

# Make HTTP/3 requests with aioquic, an independent implementation.
[group('edge')]
interop: build
    pip install --quiet -r tools/requirements.txt
    python3 tools/h3_interop.py

# Rate TLS with testssl.sh; takes some minutes.
[group('edge')]
testssl: build
    tools/testssl.sh

# Download GeoLite2 City and ASN for development (their license forbids redistribution).
[group('geo data')]
geo-data:
    python3 tools/fetch_geo.py {{ geo_dir }}

# Compare every geo field of random addresses with an independent reader.
[group('geo data')]
geo-check count="10000" seed="1": geo-data
    pip install --quiet -r tools/requirements.txt
    python3 tools/check_geo.py --city {{ geo_dir }}/GeoLite2-City.mmdb --asn {{ geo_dir }}/GeoLite2-ASN.mmdb --count {{ count }} --seed {{ seed }}

# Print every figure about the data with its target. `--lists DIR` adds public AS lists to compare with.
[group('geo data')]
data-report *arguments: geo-data
    pip install --quiet -r tools/requirements.txt
    python3 tools/data_report.py --dir {{ geo_dir }} {{ arguments }}

# Reload geo databases under load: 100 reloads at 2,000 requests per second for 30 seconds, with a release build.
[group('geo data')]
geo-reload: build release
    IPSEITY_BIN="$(realpath "{{ release_bin }}")" IPSEITY_RELOADS=100 IPSEITY_RELOAD_RATE=2000 IPSEITY_RELOAD_S=30 \
        cargo test --quiet {{ blackbox_flags }} -- --nocapture geo_reload

# Measure memory and start-up time of a release build with GeoLite2 City and ASN, idle and during a reload.
[group('geo data')]
geo-memory: geo-data build release
    IPSEITY_BIN="$(realpath "{{ release_bin }}")" IPSEITY_FULL_DATABASES="$(realpath {{ geo_dir }})" \
        cargo test --quiet {{ blackbox_flags }} -- --nocapture geo_memory

# Needs wrk, h2load, nginx with geoip2 and Lua, valgrind, perf and an idle machine. Writes docs/bench.*; `--short` writes nothing and
# takes two minutes.
# Measure what a request costs, compared with servers that do less: CPU time, rates, latencies and targets.
[group('measurements')]
bench *arguments: geo-data release
    cargo build --quiet --release -p ipseity-bench
    "{{ target }}/release/bench" compare {{ arguments }}

# Count instructions per request with callgrind; takes two minutes. On a busy machine, requests share more of the background
# tasks. Fails if a restricted key costs more than 8 % more.
[group('measurements')]
bench-instructions: geo-data release
    cargo build --quiet --release -p ipseity-bench
    "{{ target }}/release/bench" instructions

# Check the cost of a request against its budget: instructions relative to bare servers of the same debug build; needs valgrind.
[group('measurements')]
bench-budget: build
    "{{ target }}/debug/bench" budget

# Takes 15 minutes and writes docs/scale.*; `--short` uses fewer keys and writes nothing.
# Measure how costs grow with keys (up to a million), Redis shards and nodes.
[group('measurements')]
scale *arguments: geo-data release
    cargo build --quiet --release -p ipseity-bench
    "{{ target }}/release/bench" scale {{ arguments }}

# Check `ipseity doctor` on more than thirty setups that are broken in one way each, and on a working one.
[group('operations')]
doctor-check: build
    cargo test --quiet {{ blackbox_flags }} -- --nocapture doctor

# Test alerts and dashboard: unit tests of every alert, then a real Prometheus on a real node.
[group('operations')]
alerts-check: build
    cargo test --quiet {{ blackbox_flags }} -- --nocapture alerts

# Check the files of deploy/ and the workflows with their schemas and linters, and their settings against default.toml.
[group('operations')]
deploy-check:
    pip install --quiet -r tools/deploy/requirements.txt
    python3 tools/deploy/check.py

# Needs root, jq and npm. Without Docker, it starts Docker from Debian with mmdebstrap. `--program FILE` uses a built program
# instead of a release build; `--old COMMIT` selects the version to upgrade from.
# Install, break and upgrade the Compose deployment on real Docker.
[group('operations')]
compose-check *arguments:
    tools/compose/check.sh {{ arguments }}

# Build the Debian package of the program that `dist` builds; needs cargo-deb.
[group('operations')]
package: dist
    tools/package/build.sh "{{ dist_bin }}" "{{ target }}/debian/ipseity.deb"

# Build the program of a release, with the same bytes in any directory.
[group('operations')]
dist:
    tools/release/build.sh "{{ dist_bin }}"

# Build the last commit twice in different directories and compare the programs byte by byte; takes two release builds.
[group('operations')]
reproduce:
    tools/release/reproduce.sh

# `--program FILE` packs a built program; otherwise it takes a release build.
# Build the files of a release like the release workflow, and verify them; needs cargo-deb and cargo-cyclonedx.
[group('operations')]
release-check *arguments:
    tools/release/check.sh {{ arguments }}

# `--short` uses this machine's system and a debug build; `--program FILE` packs a built program; `--package FILE` checks a
# built package; `--suite NAME` selects the Debian.
# Install, upgrade and purge the package on a fresh Debian with systemd; needs root, cargo-deb and mmdebstrap.
[group('operations')]
package-check *arguments:
    tools/package/run.sh {{ arguments }}

# `--short` leaves out some pages; the names of scenarios select (`just runbooks backup redis`). Needs root and cargo-deb.
# Follow the runbooks of docs/operations as they are written, on a booted system under load, and check what they promise.
[group('operations')]
runbooks *arguments: build
    tools/package/run.sh --short --program "${IPSEITY_BIN:-{{ target }}/debug/ipseity}" --runbooks {{ arguments }}

# Test backup and restore, upgrade from and rollback to the version `old`, and a move of Redis, all under load.
[group('operations')]
lifecycle old="02062db" seconds="5": && retention-check
    old="$(tools/old_version.sh {{ old }})"; cargo build --quiet {{ build_flags }} --bins --tests; \
    IPSEITY_OLD_BIN="$old" IPSEITY_LIFECYCLE_S={{ seconds }} \
        cargo test --quiet {{ blackbox_flags }} -- --nocapture --test-threads 1 lifecycle

# Simulate 400 days with 1,000 keys: expired data is deleted, and nothing grows without bound.
[group('operations')]
retention-check days="400" keys="1000": build
    IPSEITY_DAYS={{ days }} IPSEITY_DAYS_KEYS={{ keys }} cargo test --quiet {{ blackbox_flags }} -- --nocapture storage_does_not_grow

# Run the ledger's tests and the recovery tests with Valkey instead of Redis; needs valkey-server.
[group('operations')]
valkey program="valkey-server":
    cargo build --quiet {{ build_flags }} --bins --tests
    export IPSEITY_REDIS_BIN="$(command -v {{ program }})"; \
        cargo nextest run -p ipseity-ledger && \
        cargo test --quiet {{ blackbox_flags }} -- durability race cluster limits lifecycle

# Build the service as users get it.
[group('operations')]
release:
    @cargo build --quiet --release -p ipseity-server

# Update the snapshot of all help pages, after you have read them.
[group('generated files')]
help-pages: build
    IPSEITY_HELP=write cargo test --quiet {{ blackbox_flags }} -- help_pages_match
    git diff --stat crates/server/tests/blackbox/help.txt

# List type names that are defined more than once, with the import cycles of each crate.
[group('generated files')]
structure:
    cargo nextest run {{ build_flags }} --no-capture -E 'test(visible_types) or test(imports_have_no_cycles)'

# Generate the tables of currencies, regions and time zones from their sources.
[group('generated files')]
tables:
    pip install --quiet -r tools/requirements.txt
    python3 tools/tables.py

# Generate the list of common passwords from its source.
[group('generated files')]
passwords:
    python3 tools/passwords.py

# Draw the landing page's map, the social card and the icon.
[group('generated files')]
draw:
    npm ci --silent --prefix tools/art
    node tools/art/draw.mjs > crates/portal/assets/world.tsv
    node tools/art/card.mjs
