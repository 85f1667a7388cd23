#!/bin/sh
# Becomes a real node: a set of namespaces with a separate root, which cannot change anything on this machine.
#
# In: a stage, the node's directory with `settings`, and the pid of a process in the bridge's network namespace.
# Out: PID 1 of the node (init.sh). Started by realnode.py. Three stages, because each has to be a process that already
# is where the previous stage put it: in its control groups, in a control group namespace, in all namespaces.
# Invariant: all mounts are in the mount namespace of the node and its veth ends in its network namespace, so that the
# kernel removes everything when PID 1 dies.
set -eu
stage=$1 node=$2 hub=$3
. "$node/settings"

case $stage in
groups)
    for group in $GROUPS_JOINED; do echo $$ >"$group/cgroup.procs"; done
    exec unshare --cgroup -- /bin/sh "$0" leaf "$node" "$hub"
    ;;
leaf)
    if [ "$UNIFIED" = yes ]; then
        # cgroup v2: only a group without processes can delegate controllers.
        mkdir -p "$GROUPS_JOINED/init"
        echo $$ >"$GROUPS_JOINED/init/cgroup.procs"
        for controller in $(cat "$GROUPS_JOINED/cgroup.controllers"); do
            echo "+$controller" >"$GROUPS_JOINED/cgroup.subtree_control"
        done
    fi
    exec unshare --mount --uts --ipc --net --pid --fork --kill-child --propagation private \
        -- /bin/sh "$0" inside "$node" "$hub"
    ;;
esac

# --- inside: PID 1 of the node, still with the files of the machine ---

in_hub() { nsenter --net="/proc/$hub/ns/net" "$@"; }

plug() {
    ip link set lo up
    tries=50
    # The veth from before a reboot is removed with its namespace, shortly after the last process.
    until in_hub ip link add "port$INDEX" type veth peer name eth0 address "$MAC" netns 1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { echo "node $NAME: the bridge still has an old veth port$INDEX" >&2; exit 1; }
        sleep 0.1
    done
    in_hub ip link set "port$INDEX" master bridge up
    ip address add "$ADDRESS/24" dev eth0
    ip link set eth0 up
    ip route add "$SERVICES" dev eth0 src "$ADDRESS"
    for peer in $PEERS; do ip route add "${peer%,*}" via "${peer#*,}"; done
    echo 1 >/proc/sys/net/ipv4/ip_forward
}

device() { # name, major, minor
    mknod -m 666 "$root/dev/$1" c "$2" "$3"
}

devices() {
    # A separate /dev: changes by an installer stay here.
    mount -t tmpfs -o mode=755,nosuid dev "$root/dev"
    device null 1 3; device zero 1 5; device full 1 7; device random 1 8; device urandom 1 9; device tty 5 0
    device kmsg 1 11; device fuse 10 229
    mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777,nosuid,nodev shm "$root/dev/shm"
    mount -t mqueue mqueue "$root/dev/mqueue"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    ln -s /proc/self/fd/0 "$root/dev/stdin"
    ln -s /proc/self/fd/1 "$root/dev/stdout"
    ln -s /proc/self/fd/2 "$root/dev/stderr"
}

control_groups() {
    if [ "$UNIFIED" = yes ]; then
        mount -t cgroup2 cgroup "$root/sys/fs/cgroup"
        return
    fi
    mount -t tmpfs -o mode=755,nosuid cgroup "$root/sys/fs/cgroup"
    for hierarchy in $HIERARCHIES; do
        mkdir "$root/sys/fs/cgroup/${hierarchy#name=}"
        mount -t cgroup -o "$hierarchy" cgroup "$root/sys/fs/cgroup/${hierarchy#name=}"
        # Controllers that share a hierarchy are also available under each of their names.
        for one in $(echo "$hierarchy" | tr , ' '); do
            [ "$one" = "$hierarchy" ] || ln -s "$hierarchy" "$root/sys/fs/cgroup/$one"
        done
    done
}

pretend() { # file below /proc, content
    # The node reads its own values; it never writes them: these belong to the machine.
    mkdir -p "$root/run/node/proc"
    echo "$2" >"$root/run/node/proc/${1##*/}"
    mount --bind "$root/run/node/proc/${1##*/}" "$root/proc/$1"
}

root=$node/root
hostname "$NAME"
plug
mount -t overlay "node-$NAME" -o "lowerdir=$LOWER,upperdir=$node/upper,workdir=$node/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs -o mode=755,nosuid,nodev run "$root/run"
mount -t tmpfs -o mode=1777,nosuid,nodev tmp "$root/tmp"
devices
control_groups
pretend sys/kernel/random/boot_id "$(cat /proc/sys/kernel/random/uuid)"
pretend sys/vm/overcommit_memory 1
pretend sys/vm/panic_on_oom 0
pretend sys/kernel/panic 10
pretend sys/kernel/panic_on_oops 1
pretend sys/kernel/keys/root_maxkeys 1000000
pretend sys/kernel/keys/root_maxbytes 25000000
for directory in lib/containerd lib/kubelet lib/cni log; do
    # On the disk: the overlays of containerd cannot be on an overlay.
    mkdir -p "$node/disk/$directory" "$root/var/$directory"
    mount --bind "$node/disk/$directory" "$root/var/$directory"
done

cd "$root"
mkdir -p .machine
pivot_root . .machine
exec chroot . /bin/sh -c 'umount --lazy /.machine && rmdir /.machine && exec /bin/sh /usr/lib/trellis-node/init' \
    </dev/null
