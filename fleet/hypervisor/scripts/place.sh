# VALIDATION UUID RUN EPOCH XML_BYTES SEED_BYTES LIMIT STARTER   stdin: domain.xml, then seed.iso
# Take the fence and leave a detached starter (start.sh, the text STARTER) at work.
#
# Two locks. `fence.lock` (host-wide, held for moments) guards `fence` and `closed/`. `<validation>/start.lock` says "a start
# is at work": it is taken here, under fence.lock, and passed on to the starter and to its `virsh create` as an open file,
# so that it is free again only when both have ended, however they end. teardown.sh closes the validation under fence.lock
# and then waits for start.lock. Hence, whichever comes first:
# - closed before this script has fence.lock: refused here;
# - closed after that: the teardown meets start.lock, and whoever gets past it finds a starter that has ended, so that
#   what the teardown then destroys, or does not see, stays gone.
validation=$1 uuid=$2 run=$3 epoch=$4 xml_bytes=$5 seed_bytes=$6 limit=$7 starter=$8
dir=$state/$validation
need_virsh

refuse_closed() { [ ! -e "$state/closed/$validation" ] || fail 3 "closed by run and epoch $(cat "$state/closed/$validation")"; }

# 711: QEMU runs as a user of its own, and has to get to the files that libvirt gives it
[ -d "$state/closed" ] || { mkdir -p "$state/closed" && chmod 711 "$state"; } || fail 6 "cannot write to $state"
refuse_closed
mkdir -p "$dir" && chmod 711 "$dir" || fail 6 "cannot write to $dir"

# The payload comes in before any lock is taken: a connection that is cut here must block nobody.
incoming=$dir/incoming.$$
trap 'rm -f "$incoming".*; rmdir "$dir" 2>/dev/null' EXIT
(
    umask 077
    timeout 120 head -c "$xml_bytes" >"$incoming.xml" && timeout 120 head -c "$seed_bytes" >"$incoming.iso"
) || fail 6 "cannot store the domain in $dir"
[ "$(wc -c <"$incoming.xml")" -eq "$xml_bytes" ] && [ "$(wc -c <"$incoming.iso")" -eq "$seed_bytes" ] ||
    fail 6 "the upload to $dir was cut, or the disk is full"

exec 9>>"$state/fence.lock" || fail 6 "cannot write to $state"
flock -w 10 9 || fail 5 'another act holds the fence of this host'
refuse_closed
read_fence || fail 6 "$state/fence is damaged: it must hold two numbers, run and epoch"
if [ "$fence_run" -gt "$run" ] || { [ "$fence_run" -eq "$run" ] && [ "$fence_epoch" -gt "$epoch" ]; }; then
    words="run $run epoch $epoch comes late: the host's fence is at run $fence_run epoch $fence_epoch"
    printf '%s\n' "$words" >"$dir/refused"
    fail 3 "$words"
fi
write_fence "$run" "$epoch" || fail 6 "cannot write $state/fence"
rm -f "$dir/refused"

# It ran once: what happened to it since is for people and the verdict to know, not to be started again over.
[ "$(cat "$dir/rc" 2>/dev/null)" != 0 ] || exit 0
exec 8>>"$dir/start.lock" || fail 6 "cannot write to $dir"
flock -w 2 8 || exit 0 # a start is at work (2 s, because placement.sh looks at the lock by taking it for a moment)
rm -f "$dir/rc"
sed "s|@FLEET_STATE@|$state|g" "$incoming.xml" >"$incoming.filled" && mv "$incoming.filled" "$dir/domain.xml" &&
    mv "$incoming.iso" "$dir/seed.iso" || fail 6 "cannot write to $dir"
# virtlogd would make it as root's own, and a login that is not root could not read it
[ -e "$dir/console.log" ] || (umask 077 && : >"$dir/console.log") || fail 6 "cannot write to $dir"
setsid sh -c "$starter" fleet-start "$validation" "$uuid" "$run" "$limit" </dev/null >"$dir/place.log" 2>&1 9>&- &
