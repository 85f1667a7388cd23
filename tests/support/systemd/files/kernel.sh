#!/bin/sh
# Makes a kernel from Debian's package, with its modules, and an initial file system for a virtual disk and network.
#
# In: TREE (a Debian system with kmod and busybox), PACKAGE (the unpacked package), OUT, and the first program INIT in the
# environment; a mount namespace of its own. Out: in OUT `vmlinuz`, `initramfs`, and `modules/usr/lib/modules`.
set -eu
version=$(ls "$PACKAGE/lib/modules")
cp "$PACKAGE/boot/vmlinuz-$version" "$OUT/vmlinuz"
mkdir -p "$OUT/modules/usr/lib/modules" "$OUT/root/bin" "$OUT/root/modules"
cp -r "$PACKAGE/lib/modules/$version" "$OUT/modules/usr/lib/modules"
mkdir "$OUT/work" "$OUT/mount"
mount -t overlay build -o "lowerdir=$TREE,upperdir=$OUT/modules,workdir=$OUT/work" "$OUT/mount"
chroot "$OUT/mount" depmod "$version"
cp "$OUT/mount/bin/busybox" "$OUT/root/bin"
cp "$INIT" "$OUT/root/init"
chmod 755 "$OUT/root/init"
for wanted in virtio_pci virtio_blk virtio_net; do
    chroot "$OUT/mount" modprobe --set-version "$version" --show-depends "$wanted"
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | while read -r module; do
    cp "$OUT/mount$module" "$OUT/root/modules"
    basename "$module" >>"$OUT/root/modules/order"
done
umount "$OUT/mount"
(cd "$OUT/root" && find . | "$TREE/bin/busybox" cpio -o -H newc) >"$OUT/initramfs"
rm -r "$OUT/root" "$OUT/work" "$OUT/mount"
