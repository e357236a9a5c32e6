#!/usr/bin/env bash
# engine.sh ROOT DIR: runs a container engine on the Debian system in ROOT, as the first process of separate namespaces. DIR
# has the same path inside. check.sh starts it on machines without an engine.
set -euo pipefail
root=$1 dir=$2
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
for tree in sys dev; do mount --rbind "/$tree" $tree; done
for scratch in run tmp; do mount -t tmpfs tmpfs $scratch; done
mkdir -p ".$dir"
mount --bind "$dir" ".$dir"
ip link set lo up
# `docker exec` enters the root of the mount namespace, so a chroot is not enough. The old root is stacked on top.
pivot_root . .
umount --lazy .
# Containers inherit the limit of open files of this machine: the default of Docker can be above it.
exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . \
    dockerd --exec-opt native.cgroupdriver=cgroupfs --default-ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)"
