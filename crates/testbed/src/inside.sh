# The last step into a host, in mounts and a host name of its own: inside HOST STATE PROGRAM [ARGUMENT...]
#
# /sys is mounted anew, so that /sys/class/net shows this host's interfaces; control groups stay what they were, since
# slurmd and others look for them there. All of these mounts end with the program.
set -e
host=$1 state=$2
shift 2
echo "$host" >/proc/sys/kernel/hostname
mount --bind "$state/hosts" /etc/hosts
if [ -d /sys/fs/cgroup ]; then
    mount --rbind /sys/fs/cgroup "$state/cgroup"
    mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
    mount --rbind "$state/cgroup" /sys/fs/cgroup
else
    mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
fi
exec "$@"
