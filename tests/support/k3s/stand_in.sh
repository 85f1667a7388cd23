#!/bin/sh
# Stands in for k3s, as far as containerd is concerned: renders its configuration at each start, and runs it as a child
# that ends with this process, while containers stay. There is no control plane and no kubelet.
#
# A template of the user is rendered instead of the base, that of version 3 before that of version 2; the base can be
# included in it, and imports a directory of its version. Source: docs.k3s.io, "Configuring containerd".
set -u
etc=/var/lib/rancher/k3s/agent/etc/containerd
socket=/run/k3s/containerd/containerd.sock
place="--address $socket --state /run/k3s/containerd --root /var/lib/rancher/k3s/agent/containerd"

base_3() {
    cat <<END
version = 3
imports = ["$etc/config-v3.toml.d/*.toml"]
root = "/var/lib/rancher/k3s/agent/containerd"
state = "/run/k3s/containerd"

[grpc]
  address = "$socket"

[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = "127.0.0.1"

[plugins.'io.containerd.cri.v1.runtime']
  enable_unprivileged_ports = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
END
}

base_2() {
    cat <<END
version = 2
imports = ["$etc/config.toml.d/*.toml"]

[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
END
}

render() { # version
    while IFS= read -r line; do
        case $line in
        '{{ template "base" . }}') "base_$1" ;;
        *) printf '%s\n' "$line" ;;
        esac
    done
}

if [ -e "$etc/config-v3.toml.tmpl" ]; then
    render 3 <"$etc/config-v3.toml.tmpl" >"$etc/config.toml"
elif [ -e "$etc/config.toml.tmpl" ]; then
    render 2 <"$etc/config.toml.tmpl" >"$etc/config.toml"
else
    base_3 >"$etc/config.toml"
fi
# shellcheck disable=SC2086 # several words
containerd --config "$etc/config.toml" $place &
child=$!
trap 'kill -9 $child; exit 0' TERM INT
until ctr --address "$socket" version >/dev/null 2>&1; do
    kill -0 $child || exit 1
    sleep 0.1
done
echo 'msg="k3s is up and running"'
wait $child
