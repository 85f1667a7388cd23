#!/bin/sh
# PID 1 of a real node: keeps containerd, kubelet and kube-proxy running, and reaps orphaned processes.
#
# In: the programs and files of the node. Out: a file with the pid of each service below /run/node, its log below
# /var/log. `systemctl` stops and starts services through these files. Ends only when it is killed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
state=/run/node
# As on any node: shared mount propagation.
mount --make-rshared /
mkdir -p "$state"
# Installers use this to detect systemd (sd_booted(3)) and restart services with systemctl.
mkdir -p /run/systemd/system

service() { # name, command line
    name=$1
    shift
    while :; do
        if [ -e "$state/$name.stopped" ]; then
            sleep 0.1
            continue
        fi
        "$@" >>"/var/log/$name.log" 2>&1 </dev/null &
        echo $! >"$state/$name.new" && mv "$state/$name.new" "$state/$name.pid"
        wait $!
        echo "$name ended with status $?" >>"/var/log/$name.log"
        rm -f "$state/$name.pid"
        sleep 0.2
    done
}

service containerd /usr/bin/containerd &

until ctr version >/dev/null 2>&1; do sleep 0.1; done
if [ ! -e /var/lib/containerd/.images ]; then
    for archive in /usr/share/trellis-node/images/*.tar; do
        ctr --namespace k8s.io images import "$archive" >>/var/log/images.log 2>&1 || echo "$archive" >&2
    done
    touch /var/lib/containerd/.images
fi

service kubelet /usr/bin/kubelet --config=/etc/kubernetes/kubelet.yaml --kubeconfig=/etc/kubernetes/kubelet.conf \
    --node-labels=trellis.local/real-node=true --node-ip="$(cat /etc/kubernetes/address)" \
    --hostname-override="$(hostname)" &
service kube-proxy /usr/bin/kube-proxy --config=/etc/kubernetes/kube-proxy.yaml --hostname-override="$(hostname)" &

# Orphans are reparented to PID 1: reap them as long as there are services.
while :; do
    wait
    sleep 1
done
