#!/usr/bin/env bash
# boot.sh LOWER DIR: boots a small system as its first process. check.sh runs it in separate namespaces.
set -euo pipefail
lower=$1 dir=$2
mkdir "$dir/layer" "$dir/root"
mount -t tmpfs tmpfs "$dir/layer"
mkdir "$dir/layer/upper" "$dir/layer/work"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$dir/layer/upper,workdir=$dir/layer/work" "$dir/root"
cd "$dir/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for mountpoint in run tmp; do mount -t tmpfs tmpfs $mountpoint; done
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
mount --bind "$dir/console.log" dev/console
mount --bind "$dir/shared" mnt

# Remove the identity, services and data of the lower system.
: >etc/machine-id
rm -rf etc/systemd/system/*.target.wants var/lib/redis/* var/lib/postgresql/* etc/postgresql/*
chroot . bash -c 'pg_createcluster "$(ls /usr/lib/postgresql | sort -n | tail -1)" main' >/dev/null
chroot . install -d -m 0750 -o redis -g redis /var/lib/redis
chroot . systemctl enable --quiet postgresql redis-server
# Services create mounts, so the layer must be the root, not a chroot. The old root is stacked on top and unmounted.
pivot_root . .
umount --lazy .
exec chroot . env -i container=unshare PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=multi-user.target
