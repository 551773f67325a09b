# SINCE LIMIT   The end of this boot's kernel log: the journal's from SINCE (seconds since 1970) on, else the ring buffer's.
since=$1 limit=$2

tailed() { # COMMAND...  an empty log because the command failed must not look like a quiet host
    status=$({ { "$@"; echo $? >&3; } | tail -c "$limit" >&4; } 3>&1)
    [ "$status" -eq 0 ] || fail 6 "$1 ended with $status"
}

exec 4>&1
# journalctl is often there without a journal (then it prints nothing, and is content)
if [ -n "$(journalctl -k -q -n 1 --no-pager 2>/dev/null)" ]; then
    tailed journalctl -k -q --no-pager -o short-iso-precise --since "@$since"
else
    command -v dmesg >/dev/null 2>&1 || fail 127 'dmesg: not found'
    tailed dmesg --time-format iso
fi
