#!/bin/sh
# Becomes a host of a rack: runs as process 1 of new uts, mount, pid and ipc namespaces, in the
# network namespace of the host. Arguments: NAME DISK "FILE TO JOIN EACH CGROUP..." [MOUNT POINT...]
set -eu
name=$1 disk=$2 cgroups=$3
shift 3
for procs in $cgroups; do echo 0 >"$procs"; done

hostname "$name"
root=$disk/root
mount -t overlay "nova-$name" \
    -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" "$root"
number=0
for point; do
    mount -t overlay "nova-$name" \
        -o "lowerdir=$point,upperdir=$disk/more/$number/upper,workdir=$disk/more/$number/work" "$root$point" ||
        mount --bind -o ro "$point" "$root$point"
    number=$((number + 1))
done
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
if [ -d /sys/fs/cgroup ]; then mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"; fi
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755,size=16m tmpfs "$root/run"
mkdir "$root/run/sshd"
mount --bind "$disk/tmp" "$root/tmp"

echo 0 >/proc/sys/net/ipv4/ip_forward
if [ -e /proc/sys/net/ipv6 ]; then echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; fi
cd "$root"
pivot_root . mnt
umount -l /mnt
# A host is no place to set the machine's clock, load modules or reboot from.
exec setpriv --bounding-set=-sys_time,-sys_module,-sys_boot \
    /usr/sbin/sshd -D -e -f /etc/ssh/nova/sshd_config
