#!/usr/bin/env bash
# check.sh LOWER FIRST NEXT COMMAND…: boots systemd on a temporary layer over the directory LOWER, a Debian system with
# PostgreSQL and Redis, and runs COMMAND there. /mnt has the packages FIRST and NEXT, steps.sh, the runbooks and what follows
# them. Needs root and removes everything it created.
set -euo pipefail
lower=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
dir=$(mktemp -d)
mkdir "$dir/shared"
cp --reflink=auto "$2" "$dir/shared/first.deb"
cp --reflink=auto "$3" "$dir/shared/next.deb"
cp -r "$here/steps.sh" "$here/../runbooks" "$here"/../../docs/operations/*.md "$dir/shared/"
shift 3
: >"$dir/console.log"
# The first process of a PID namespace reacts only to SIGKILL, which also ends its children.
trap 'kill -KILL "$container" 2>/dev/null && wait "$container" 2>/dev/null || true; rm -rf "$dir"' EXIT

unshare --mount --net --pid --uts --ipc --cgroup --fork --kill-child "$here/boot.sh" "$lower" "$dir" >"$dir/boot.log" 2>&1 &
container=$!
inside() { nsenter --target "$(pgrep --parent $container)" --all --root --wd env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"; }
deadline=$((SECONDS + 60))
# Units of the lower system may fail here, so `degraded` is accepted.
until [[ "$(inside systemctl is-system-running 2>/dev/null)" =~ running|degraded ]]; do
    if ((SECONDS > deadline)) || ! kill -0 $container 2>/dev/null; then
        echo "systemd did not start on a layer over $lower:"
        cat "$dir/boot.log" "$dir/console.log"
        exit 1
    fi
    sleep 0.2
done
inside "$@"
