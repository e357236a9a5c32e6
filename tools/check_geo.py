"""Compares crates/geo with an independent reader and with the sources of its tables, for random routed addresses.

Usage: python3 tools/check_geo.py --city FILE --asn FILE [--count N] [--seed N] [--now UNIX_TIME]
(needs cargo, npm and tools/requirements.txt). Every address is looked up twice, half a year apart, to cover both offsets of its time zone.
"""

import argparse
import functools
import ipaddress
import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import tzdata

from truth import ROOT, Cldr, Truth

HALF_YEAR_S = 182 * 86_400
SHOWN_MAX = 20
# The first 16 bits of the allocated IPv6 blocks.
IPV6_BLOCKS = [0x2001, *(high + low for high in (0x2400, 0x2600, 0x2800, 0x2A00, 0x2C00) for low in range(16))]


def random_addresses(truth: Truth, count: int, seed: int, networks: list[str]) -> list[str]:
    """Random addresses that the databases contain: from these networks, or else from both families equally."""
    chance = random.Random(seed)
    if networks:
        drawn = (ipaddress.ip_network(chance.choice(networks)) for _ in range(count))
        numbers = [int(network[chance.randrange(network.num_addresses)]) for network in drawn]
        # IPv4 uses the lowest 32 bits of the search tree.
        return [str(ipaddress.ip_address(number)) for number in numbers]
    addresses = []
    families = families_of(truth)
    while len(addresses) < count:
        if families[len(addresses) % len(families)] == 4:
            address = str(ipaddress.IPv4Address(chance.getrandbits(32)))
        else:
            address = str(ipaddress.IPv6Address(chance.choice(IPV6_BLOCKS) << 112 | chance.getrandbits(112)))
        if truth.record(address):
            addresses.append(address)
    return addresses


def families_of(truth: Truth) -> list[int]:
    has_ipv4 = any(reader.metadata().ip_version == 4 or reader.get("8.8.8.8") for reader in truth.readers)
    has_ipv6 = any(reader.metadata().ip_version == 6 for reader in truth.readers)
    return [family for family, has_family in ((6, has_ipv6), (4, has_ipv4)) if has_family]


@functools.cache
def programs() -> dict[str, str]:
    """Builds the example programs of crates/geo and returns their paths by name."""
    build = ["cargo", "build", "--quiet", "-p", "ipseity-geo", "--examples", "--message-format", "json"]
    run = subprocess.run(build, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = [json.loads(line) for line in run.stdout.splitlines()]
    return {message["target"]["name"]: message["executable"] for message in messages if message.get("executable")}


def example(name: str, arguments: list[str], text: str = "", **limits) -> list:
    """Runs an example program of crates/geo and returns its output lines."""
    run = subprocess.run([programs()[name], *arguments], input=text, capture_output=True, text=True, **limits)
    if run.returncode:
        raise RuntimeError(f"{name} failed with {run.returncode}: {run.stderr[-2000:]}")
    return [json.loads(line) for line in run.stdout.splitlines()]


def compare(
    truth: Truth, files: list[str], count: int, seed: int, now_s: int, networks: list[str] = ()
) -> tuple[dict[str, list[str]], Counter, int]:
    """Returns the wrong results by address, how often each field is known, and the number of addresses."""
    addresses = random_addresses(truth, count, seed, networks)
    text = "".join(f"{address}\n" for address in addresses)
    failed, known = {}, Counter()
    for moment_s in (now_s, now_s + HALF_YEAR_S):
        results = example("locate", [str(moment_s), *(str(Path(file).resolve()) for file in files)], text)
        for address, result in zip(addresses, results, strict=True):
            known.update(field for field, value in result.items() if value is not None)
            if differences := truth.differences(address, moment_s, result):
                failed.setdefault(address, differences)
    return failed, known, len(addresses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--city", required=True)
    parser.add_argument("--asn", required=True)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--now", type=int, default=int(time.time()))
    options = parser.parse_args()

    files = [options.city, options.asn]
    truth = Truth(files, Cldr(options.now))
    failed, known, count = compare(truth, files, options.count, options.seed, options.now)
    for address, differences in list(failed.items())[:SHOWN_MAX]:
        print(f"{address}: {'; '.join(differences)}")
    print(f"seed {options.seed}, tzdata {tzdata.IANA_VERSION}")
    print("known: " + ", ".join(f"{field} {times / 2 / count:.1%}" for field, times in known.items()))
    print(f"{count - len(failed)} passed, {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
