# Read by host.sh: logins of this host's own, a sudo that knows them, a journal, and a network namespace for libvirt, so that
# its bridges are nobody else's.
for file in passwd shadow group sudoers; do
  mount --bind "/run/fleet-host/etc/$file" "/etc/$file"
done
mount --bind /run/fleet-host/journalctl /usr/bin/journalctl
libvirtd='unshare --net /usr/sbin/libvirtd'
