#!/bin/sh
# Gives the node its address, and routes to the pods of the other nodes. In: /etc/trellis-node. Started once.
set -eu
. /etc/trellis-node
ip link set lo up
ip address add "$ADDRESS/24" dev eth0
ip link set eth0 up
ip route add "$SERVICES" dev eth0 src "$ADDRESS"
for peer in $PEERS; do ip route add "${peer%,*}" via "${peer#*,}"; done
echo 1 >/proc/sys/net/ipv4/ip_forward
