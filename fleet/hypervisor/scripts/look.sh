# NONCE LIMIT ADDRESS...   One look: boot id, clock, domains, PCI devices. Each section begins with a line "NONCE KIND KEY STATUS";
# the nonce is random and new, so that nothing in a domain's XML can look like one.
nonce=$1 virsh_limit=$2
shift 2
need_virsh

section() { # KIND KEY COMMAND...
    kind=$1 key=$2
    shift 2
    said=$("$@")
    status=$?
    printf '%s %s %s %s\n%s\n' "$nonce" "$kind" "$key" "$status" "$said"
    return "$status"
}

first_line() { [ ! -r "$1" ] || { read -r line <"$1" || :; printf '%s' "${line-}"; }; }

device() {
    dir=$root/sys/bus/pci/devices/$1
    [ -d "$dir" ] || return 1
    od -An -tx1 -N4 "$dir/config" 2>/dev/null | tr -d ' \n'
    driver=$(readlink "$dir/driver")
    printf '|%s|%s|%s' "${driver##*/}" "$(first_line "$dir/current_link_speed")" "$(first_line "$dir/current_link_width")"
}

section boot - cat "$root/proc/sys/kernel/random/boot_id"
section clock - date +%s.%N
section list - ask list --all --uuid
uuids=$said unanswered=
for uuid in $uuids; do
    case $uuid in
        *[!0-9a-f-]*) continue ;; # the reader refuses the whole list for it
    esac
    section state "$uuid" ask domstate "$uuid" && section xml "$uuid" ask dumpxml "$uuid" || unanswered=1
done
# A domain may go between the list and the questions about it: this list tells gone from not answered.
[ -z "$unanswered" ] || section again - ask list --all --uuid
for address in "$@"; do
    section device "$address" device "$address"
done
printf '%s end - 0\n' "$nonce"
