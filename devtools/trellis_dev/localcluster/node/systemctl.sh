#!/bin/sh
# Replaces systemctl on a test node without systemd; PID 1 of the node executes its requests.
#
# It supports three units: containerd, kubelet, kube-proxy. As with systemd and the unit file of containerd, `start` and
# `restart` of containerd return when containerd responds, or with status 1 if it ended, and only the main process is
# ended, so that containers keep running. `/run/systemd/system` exists, as with systemd, but nothing else of it.
set -u
state=/run/node
wait=yes
quiet=no
verb=
units=
for word in "$@"; do
    case $word in
    --no-block) wait=no ;;
    -q | --quiet) quiet=yes ;;
    -*) ;;
    *) if [ -z "$verb" ]; then verb=$word; else units="$units ${word%.service}"; fi ;;
    esac
done

pid_of() { cat "$state/$1.pid" 2>/dev/null; }

known() {
    case $1 in containerd | kubelet | kube-proxy) return 0 ;; esac
    echo "Unit $1.service could not be found." >&2
    return 1
}

stop() {
    touch "$state/$1.stopped"
    end "$1"
}

end() {
    pid=$(pid_of "$1") || return 0
    kill "$pid" 2>/dev/null
    tries=900 # 90 s, as in systemd
    while [ "$(pid_of "$1")" = "$pid" ]; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || kill -9 "$pid" 2>/dev/null
        sleep 0.1
    done
}

failed() {
    echo "Job for $1.service failed because the control process exited with error code." >&2
    echo "See /var/log/$1.log on the node." >&2
    return 1
}

start() {
    rm -f "$state/$1.stopped"
    [ "$wait" = yes ] || return 0
    until pid=$(pid_of "$1"); do sleep 0.05; done
    [ "$1" = containerd ] || return 0
    until timeout 5 ctr version >/dev/null 2>&1; do
        [ "$(pid_of "$1")" = "$pid" ] || { failed "$1"; return 1; }
        sleep 0.1
    done
}

case $verb in
daemon-reload | enable | disable | reset-failed) exit 0 ;;
is-system-running) echo running; exit 0 ;;
'') echo "systemctl (Trellis test node): containerd, kubelet, kube-proxy"; exit 0 ;;
esac

status=0
for unit in $units; do
    known "$unit" || exit 5
    case $verb in
    start) start "$unit" || status=1 ;;
    stop) stop "$unit" ;;
    # PID 1 starts it again even if this program is ended meanwhile, as a container whose start containerd has not yet
    # confirmed is.
    restart | try-restart | reload-or-restart) { end "$unit" && start "$unit"; } || status=1 ;;
    is-active)
        if pid_of "$unit" >/dev/null; then answer=active; else answer=inactive status=3; fi
        [ "$quiet" = yes ] || echo "$answer"
        ;;
    is-enabled) echo enabled ;;
    status)
        if pid=$(pid_of "$unit"); then echo "$unit.service: active (running), main PID $pid"
        else echo "$unit.service: inactive (dead)"; status=3; fi
        ;;
    *) echo "systemctl (Trellis test node) does not support '$verb'" >&2; exit 1 ;;
    esac
done
exit $status
