#!/usr/bin/env bash
# check.sh LOWER FIRST NEXT: boots systemd on a throw-away layer over the folder LOWER, which is a Debian system with PostgreSQL and
# Redis, and tries there what an operator does with the package FIRST and its successor NEXT (steps.sh). Needs root; nothing is left.
set -euo pipefail
lower=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
room=$(mktemp -d)
mkdir "$room/brought"
cp --reflink=auto "$2" "$room/brought/first.deb"
cp --reflink=auto "$3" "$room/brought/next.deb"
cp "$here/steps.sh" "$here"/../../docs/operations/*.md "$room/brought/"
: >"$room/console.log"
# It takes no other signal; whatever it started goes with it.
trap 'kill -KILL "$guest" 2>/dev/null && wait "$guest" 2>/dev/null || true; rm -rf "$room"' EXIT

unshare --mount --net --pid --uts --ipc --cgroup --fork --kill-child "$here/boot.sh" "$lower" "$room" >"$room/boot.log" 2>&1 &
guest=$!
inside() { nsenter --target "$(pgrep --parent $guest)" --all --root --wd env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"; }
deadline=$((SECONDS + 60))
# Some unit of the system below may not like it here; that is none of ours.
until [[ "$(inside systemctl is-system-running 2>/dev/null)" =~ running|degraded ]]; do
    if ((SECONDS > deadline)) || ! kill -0 $guest 2>/dev/null; then
        echo "systemd did not start on a layer over $lower; it says:"
        cat "$room/boot.log" "$room/console.log"
        exit 1
    fi
    sleep 0.2
done
inside bash /mnt/steps.sh
