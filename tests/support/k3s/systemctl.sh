#!/bin/sh
# Replaces systemctl on a test node without systemd; it knows one unit, k3s.
#
# As with systemd and the unit of k3s: `restart` ends only the main process (KillMode=process), so that containers keep
# running, and returns when k3s has reported that it is ready (Type=notify; k3s logs it), or with status 1 if it ended.
set -u
log=/var/log/k3s.log
quiet=no
verb=
unit=
for word in "$@"; do
    case $word in
    -q | --quiet) quiet=yes ;;
    -*) ;;
    *) if [ -z "$verb" ]; then verb=$word; else unit=${word%.service}; fi ;;
    esac
done

pid() { cat /run/node/k3s.pid 2>/dev/null; }
starts() { grep -c 'msg="k3s is up and running"' "$log"; }

if [ "$unit" != k3s ]; then
    echo "Unit $unit.service could not be found." >&2
    exit 5
fi
case $verb in
restart)
    before=$(starts)
    old=$(pid) && kill "$old"
    until new=$(pid) && [ "$new" != "$old" ]; do sleep 0.1; done
    until [ "$(starts)" -gt "$before" ]; do
        if [ "$(pid)" != "$new" ]; then
            echo "Job for k3s.service failed because the control process exited with error code." >&2
            exit 1
        fi
        sleep 0.2
    done
    ;;
is-active)
    if pid >/dev/null; then answer=active status=0; else answer=inactive status=3; fi
    [ "$quiet" = yes ] || echo "$answer"
    exit $status
    ;;
*)
    echo "systemctl (Trellis test node) does not support '$verb'" >&2
    exit 1
    ;;
esac
