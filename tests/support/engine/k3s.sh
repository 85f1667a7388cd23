#!/bin/sh
# Stands in for k3s in docker-compose.yml: a control plane and one simulated node, with the paths and variables of k3s. No
# container runs on the node. Ending this process ends everything at once, as with k3s: an API server that outlives its
# etcd would wait for it without end.
set -u
data=/var/lib/rancher/k3s
trap 'exit 0' TERM INT
mkdir -p "$data"
start() {
    while read -r line; do
        $line &
    done <"$1"
}
start /srv/stores
until kubectl get --raw /readyz >/dev/null 2>&1; do sleep 0.2; done
cp /srv/kubeconfig "$K3S_KUBECONFIG_OUTPUT"
chmod "$K3S_KUBECONFIG_MODE" "$K3S_KUBECONFIG_OUTPUT"
# kwok waits for the expiry of the Lease of its former process, and then ignores the pods that exist by then. A kubelet keeps
# its Lease over a restart.
kubectl delete leases --namespace kube-node-lease --all >/dev/null 2>&1
start /srv/controllers
sed "s/NODE-NAME/$(hostname)/g" /srv/node.json | kubectl create -f - || true
wait
