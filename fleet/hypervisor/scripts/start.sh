# VALIDATION UUID RUN LIMIT   Detached by place.sh, with start.lock open as file 8; its words go to place.log.
validation=$1 uuid=$2 run=$3 limit=$4
dir=$state/$validation

finish() { # what placement.sh reads
    printf '%s\n' "$1" >"$dir/rc.new" && mv "$dir/rc.new" "$dir/rc"
    exit 0
}

# A higher epoch of the same run wants this very domain and may go on; a higher run is another validation.
fenced() {
    [ ! -e "$state/closed/$validation" ] || return 0
    read_fence || return 0
    [ "$fence_run" -gt "$run" ]
}

# This process may have been frozen since place.sh looked.
if fenced; then finish fenced; fi
if ours "$uuid" "$validation"; then finish 0; fi
timeout "$limit" virsh create "$dir/domain.xml" </dev/null
created=$?
# A teardown that could not wait for this create (it takes minutes with eight GPUs) has closed the validation meanwhile,
# and found nothing to destroy yet: the domain is ours to remove. One that closes it after this look still waits for
# start.lock, and destroys the domain when this process has ended.
if fenced; then
    if ours "$uuid" "$validation"; then ask destroy "$uuid"; fi
    finish fenced
fi
[ "$created" -ne 124 ] || echo "virsh create did not end in $limit s" >&2
finish "$created"
