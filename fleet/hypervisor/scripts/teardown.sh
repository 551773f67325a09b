# VALIDATION UUID RUN EPOCH WAIT LIMIT KEEP   Close the validation, destroy its domain, remove its files (KEEP: console or nothing).
#
# Closing comes first and is for ever: no start of this validation gets past `closed/<validation>` (place.sh tells the order
# of the locks). It is never refused for a newer fence: a domain left by an old run has to go whatever runs now, and
# nobody who closes a validation wants it back. The fence only ever rises.
#
# A start at work is waited for, for WAIT seconds. Then this script destroys what it can see and says "busy": the domain may
# still come up behind its back. The starter sees the closed validation after its `virsh create` and destroys it; the caller
# asks again until nothing is pending, and only then is the machine free.
validation=$1 uuid=$2 run=$3 epoch=$4 wait=$5 virsh_limit=$6 keep=$7
dir=$state/$validation
need_virsh

mkdir -p "$state/closed" && exec 9>>"$state/fence.lock" || fail 6 "cannot write to $state"
flock -w 10 9 || fail 5 'another act holds the fence of this host'
read_fence || fence_run=0 fence_epoch=0 # damaged: no reason to leave a domain running
if [ "$run" -gt "$fence_run" ] || { [ "$run" -eq "$fence_run" ] && [ "$epoch" -gt "$fence_epoch" ]; }; then
    write_fence "$run" "$epoch" || fail 6 "cannot write $state/fence"
fi
[ -e "$state/closed/$validation" ] || printf '%s %s\n' "$run" "$epoch" >"$state/closed/$validation" ||
    fail 6 "cannot write to $state/closed"
exec 9>&-

pending=
if [ -e "$dir/start.lock" ]; then
    exec 8>>"$dir/start.lock" || fail 6 "cannot write to $dir"
    flock -w "$wait" 8 || pending=1
fi
busy() { [ -z "$pending" ] || fail 5 'the start is still at work on the host; the validation is closed to it'; }

gone() {
    listed "$uuid"
    case $? in
        0) return 1 ;;
        1) return 0 ;;
    esac
    busy
    no_list
}

if ! gone; then
    if ours "$uuid" "$validation"; then
        said=$(ask destroy "$uuid" 2>&1)
        destroyed=$?
        if ! gone; then
            busy
            # eight GPUs and a terabyte of memory take their time
            [ "$destroyed" -ne 124 ] || fail 5 'the domain is still being destroyed'
            fail 6 "virsh destroy: $said"
        fi
    else # or it went while we asked
        gone || {
            busy
            fail 4 "domain $uuid is not of validation $validation: its metadata does not say so"
        }
    fi
fi
busy
rm -f "$dir/domain.xml" "$dir/seed.iso" "$dir"/incoming.*
[ "$keep" = console ] || rm -rf "$dir"
