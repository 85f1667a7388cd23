#!/bin/busybox sh
# First process of the virtual machine: mounts its disk, and starts systemd from there.
/bin/busybox mkdir -p /proc /dev /disk
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules/order); do /bin/busybox insmod "/modules/$module"; done
/bin/busybox mount -t ext4 /dev/vda /disk || exec /bin/busybox poweroff -f
/bin/busybox mount --move /dev /disk/dev
/bin/busybox umount /proc
exec /bin/busybox switch_root /disk /sbin/init
