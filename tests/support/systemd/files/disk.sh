#!/bin/sh
# Writes the disk of a node: LAYERS (the uppermost first), each a directory, as one ext4 file system in OUT.
#
# In: LAYERS, OUT, SIZE in the environment; a mount namespace of its own.
set -eu
mount -t tmpfs disk /mnt
mkdir /mnt/root
mount -t overlay disk -o "lowerdir=$LAYERS" /mnt/root
mke2fs -q -t ext4 -L disk -d /mnt/root "$OUT" "$SIZE"
