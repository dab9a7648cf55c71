#!/bin/sh
# Becomes a host of a rack: runs as process 1 of new uts, mount, pid and ipc namespaces, in the
# network namespace of the host, and ends as an sshd without any rights. Arguments: NAME DISK USER-ID
# "FILE TO JOIN EACH CGROUP..." [MOUNT POINT...] --hide [DIRECTORY...] --show [DIRECTORY...]
set -eu
name=$1 disk=$2 user=$3 cgroups=$4
shift 4
for procs in $cgroups; do echo 0 >"$procs"; done

hostname "$name"
root=$disk/root
mount -t overlay "nova-$name" \
    -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" "$root"
number=0
while [ "$1" != --hide ]; do
    mount -t overlay "nova-$name" \
        -o "lowerdir=$1,upperdir=$disk/more/$number/upper,workdir=$disk/more/$number/work" "$root$1" ||
        mount --bind -o ro "$1" "$root$1"
    number=$((number + 1))
    shift
done
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
if [ -d /sys/fs/cgroup ]; then mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"; fi
mount -t tmpfs -o mode=755,size=16m tmpfs "$root/run"
mount --bind "$disk/tmp" "$root/tmp"

# Devices of its own: none of the machine's.
mount -t tmpfs -o nosuid,noexec,mode=755,size=64k tmpfs "$root/dev"
(
    cd "$root/dev"
    cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty .
    mkdir pts shm
    ln -s pts/ptmx ptmx
    ln -s /proc/self/fd fd
    ln -s fd/0 stdin
    ln -s fd/1 stdout
    ln -s fd/2 stderr
)
mount -t devpts -o newinstance,nosuid,noexec,mode=620,gid=5,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/dev/shm"

# Directories of other people's, but for what programs of experiments are read from.
shift
while [ "$1" != --show ]; do
    mkdir -p "$root$1"
    mount -t tmpfs -o mode=711,size=1m tmpfs "$root$1"
    shift
done
shift
for directory; do
    mkdir -p "$root$directory"
    mount --bind -o ro "$directory" "$root$directory"
done

echo 0 >/proc/sys/net/ipv4/ip_forward
if [ -e /proc/sys/net/ipv6 ]; then echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; fi
# Nobody is root there, and yet sshd is at its port and ping works.
echo 22 >/proc/sys/net/ipv4/ip_unprivileged_port_start
echo "0 2147483647" >/proc/sys/net/ipv4/ping_group_range
# The kernel counts the processes of a user, not those of a host; root's were never limited.
ulimit -p unlimited 2>/dev/null || ulimit -u unlimited 2>/dev/null || :
cd "$root"
pivot_root . mnt
umount -l /mnt
# From here on there is no way to more rights. The host ends with the process that started it.
exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --inh-caps=-all \
    --ambient-caps=-all --bounding-set=-all --pdeathsig KILL \
    /usr/sbin/sshd -D -e -f /etc/ssh/nova/sshd_config
