#!/bin/sh
# host.sh FOLDER   Process 1 of a bare-metal host that is a PID and mount namespace: libvirtd, virtlogd and sshd of its own.
# When this process ends, the kernel ends everything in the namespace with it, QEMU too.
set -eu
folder=$1
ulimit -n 4096

# Own state of everything that a machine has once; what the site's template names is at a fixed place inside.
for place in run var/lib/libvirt var/log/libvirt var/cache/libvirt; do
  mount -t tmpfs -o mode=755 host "/$place"
done
mkdir -p /run/sshd /run/fleet-host
mount --bind "$folder" /run/fleet-host
cp -r /etc/libvirt /run/etc-libvirt
cp "$folder/qemu.conf" "$folder/libvirtd.conf" /run/etc-libvirt
mount --bind /run/etc-libvirt /etc/libvirt

# A /dev without kvm. Where there is one that is of no use, libvirt asks QEMU about it again at every start of a domain,
# for ten seconds and more.
mkdir /run/dev
mount -t tmpfs -o mode=755 dev /run/dev
for node in null zero full random urandom tty; do
  : > "/run/dev/$node"
  mount --bind "/dev/$node" "/run/dev/$node"
done
mkdir /run/dev/pts /run/dev/shm
mount --bind /dev/pts /run/dev/pts
ln -s pts/ptmx /run/dev/ptmx
ln -s /proc/self/fd /run/dev/fd
mount --move /run/dev /dev

libvirtd=/usr/sbin/libvirtd
if [ -e "$folder/more.sh" ]; then . "$folder/more.sh"; fi

/usr/sbin/virtlogd &
$libvirtd &
exec /usr/sbin/sshd -D -e -f "$folder/sshd_config"
