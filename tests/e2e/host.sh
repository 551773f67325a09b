#!/bin/sh
# host.sh FOLDER   Process 1 of a bare-metal host that is a PID and mount namespace: libvirtd, virtlogd and sshd of its own.
# When this process ends, the kernel ends everything in the namespace with it, QEMU too.
set -eu
folder=$1
ulimit -n 4096

# Own state of everything that a machine has once; what the site's template names is at a fixed place inside.
for place in run var/lib/libvirt var/log/libvirt; do
  mount -t tmpfs -o mode=755 host "/$place"
done
mkdir -p /run/sshd /run/fleet-host
mount --bind "$folder" /run/fleet-host
mount --bind "$folder/qemu.conf" /etc/libvirt/qemu.conf

# With /dev/kvm in sight, and of no use, libvirt asks QEMU again about it at every start of a domain: a minute each.
[ ! -e /dev/kvm ] || mount --bind "$folder/no-kvm" /dev/kvm

/usr/sbin/virtlogd &
/usr/sbin/libvirtd -f "$folder/libvirtd.conf" &
exec /usr/sbin/sshd -D -e -f "$folder/sshd_config"
