#!/bin/sh
# PID 1 of a node with k3s: keeps k3s running, as the unit that the installation script of k3s writes, and reaps
# orphaned processes. In a container, k3s itself is PID 1, and the end of k3s is the end of the node.
#
# In: /usr/lib/trellis-node/kind, `machine` or `container`. Out: /run/node/k3s.pid, /var/log/k3s.log.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
# As on any node: shared mount propagation.
mount --make-rshared /
# k3s looks for the address of the node at the default route. Nothing is reached by it.
ip route add default dev eth0
# The overlays of containerd cannot be on an overlay.
mkdir -p /var/lib/containerd/rancher /var/lib/rancher /run/node
mount --bind /var/lib/containerd/rancher /var/lib/rancher

if [ "$(cat /usr/lib/trellis-node/kind)" = container ]; then
    exec /bin/k3s server >>/var/log/k3s.log 2>&1
fi

# Installers use this to detect systemd (sd_booted(3)) and restart services with systemctl.
mkdir -p /run/systemd/system
while :; do
    /usr/local/bin/k3s server >>/var/log/k3s.log 2>&1 &
    echo $! >/run/node/new && mv /run/node/new /run/node/k3s.pid
    wait $!
    echo "k3s ended with status $?" >>/var/log/k3s.log
    rm -f /run/node/k3s.pid
    sleep 0.2
done
