# READER FILE...   One line a file, in their order: `known SHA256`, `reading`, or `failed WORDS`. What is not known yet is read by a
# detached READER (the text of read_image.sh): gigabytes take longer than one call may.
#
# A digest is kept under what tells that a file has not changed since: device, inode, size, time of its content. Not the time
# of its inode: libvirt gives the file to QEMU's user at each start and back at each end.
reader=$1
shift
kept=$state/digests
mkdir -p "$kept" && chmod 711 "$state" || fail 6 "cannot write to $state"
unknown=
for file in "$@"; do
    if ! mark=$(stat -L -c '%d-%i-%s-%.9Y' -- "$file" 2>&1); then
        printf 'failed %s\n' "$(printf '%s' "$mark" | tr '\n' ' ' | head -c 500)"
    elif [ -f "$kept/$mark.failed" ]; then # told once: whoever asks again wants it tried again
        printf 'failed %s\n' "$(cat "$kept/$mark.failed")"
        rm -f "$kept/$mark.failed"
    elif [ -f "$kept/$mark" ]; then
        printf 'known %s\n' "$(cat "$kept/$mark")"
    else
        echo reading
        unknown=1
    fi
done
[ -n "$unknown" ] || exit 0
exec 9>>"$kept/lock" || fail 6 "cannot write to $kept"
flock -n 9 || exit 0 # one is at work
setsid sh -c "$reader" fleet-read-image "$@" </dev/null >/dev/null 2>&1 &
