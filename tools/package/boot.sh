#!/usr/bin/env bash
# boot.sh LOWER ROOM: becomes the first process of a small system. To be run in namespaces of its own (check.sh).
set -euo pipefail
lower=$1 room=$2
mkdir "$room/layer" "$room/root"
mount -t tmpfs tmpfs "$room/layer"
mkdir "$room/layer/upper" "$room/layer/work"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$room/layer/upper,workdir=$room/layer/work" "$room/root"
cd "$room/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for folder in run tmp; do mount -t tmpfs tmpfs $folder; done
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts devpts dev/pts
mount -t tmpfs tmpfs dev/shm
while read -r name major minor; do mknod -m 666 "dev/$name" c "$major" "$minor"; done <<'NODES'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
NODES
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
touch dev/console
mount --bind "$room/console.log" dev/console
mount --bind "$room/brought" mnt

# What the system below has of its own stays out: its identity, its services, its data.
: >etc/machine-id
rm -rf etc/systemd/system/*.target.wants var/lib/redis/* var/lib/postgresql/* etc/postgresql/*
chroot . bash -c 'pg_createcluster "$(ls /usr/lib/postgresql | sort -n | tail -1)" main' >/dev/null
chroot . systemctl enable --quiet postgresql redis-server
# The layer becomes the root, not a mere chroot: services make mounts of their own in it. The old root is put on top of it, and taken off.
pivot_root . .
umount --lazy .
exec chroot . env -i container=unshare PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=multi-user.target
