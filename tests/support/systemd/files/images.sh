#!/bin/sh
# Imports the images of the node into containerd.
set -eu
for archive in /usr/share/trellis-node/images/*.tar; do
    ctr --namespace k8s.io images import "$archive"
    rm "$archive"
done
