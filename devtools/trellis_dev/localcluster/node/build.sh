#!/bin/sh
# Builds one image in a Debian tree with buildah, in mount and pid namespaces created by imagebuild.py.
#
# In: TREE, WORK, CONTEXT, BASE, BASE_NAME, NAME, DOCKERFILE in the environment; build arguments as arguments.
# Out: $WORK/out/image.tar. Storage and mounts are below $WORK, and are removed with the namespace and directory.
set -eu
root=$WORK/root
mount -t overlay build -o "lowerdir=$TREE,upperdir=$WORK/upper,workdir=$WORK/work" "$root"
mkdir -p "$root/context" "$root/out" "$root/store"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmp "$root/tmp"
mount --bind "$CONTEXT" "$root/context"
mount -o remount,bind,ro "$root/context"
mount --bind "$WORK/out" "$root/out"
mkdir "$WORK/store"
# On the disk, not on the overlay: it is large, and the vfs driver copies it per layer.
mount --bind "$WORK/store" "$root/store"
cat /etc/resolv.conf >"$root/etc/resolv.conf"
if [ -n "$BASE" ]; then
    touch "$root/base.tar"
    mount --bind "$BASE" "$root/base.tar"
fi

buildah() {
    chroot "$root" /usr/bin/env BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs HOME=/root \
        /usr/bin/buildah --root /store/root --runroot /store/run "$@"
}

if [ -n "$BASE" ]; then
    id=$(buildah pull --quiet oci-archive:/base.tar)
    buildah tag "$id" "$BASE_NAME"
fi
buildah bud --pull-never "$@" --file "/context/$DOCKERFILE" --tag "$NAME" /context >&2
buildah push --quiet "$NAME" "docker-archive:/out/image.tar:$NAME" >&2
