# NONCE LIMIT ADDRESS...   One look: boot id, clock, domains, PCI devices.
nonce=$1 virsh_limit=$2
shift 2
addresses=$*
root=${FLEET_ROOT:-}
need_virsh

# One process for each kind of file, not for each of 24 devices. `head` puts "==> PATH <==" above each file that it can open.
files() { # NAME COMMAND...: COMMAND on that file of each device
    name=$1
    shift
    for address in $addresses; do set -- "$@" "$root/sys/bus/pci/devices/$address/$name"; done
    "$@" 2>/dev/null
}
config() { files config head -v -c 4 | od -An -v -tx1; }
speed() { files current_link_speed head -v -n 1; }
width() { files current_link_width head -v -n 1; }
driver() { files driver stat -c %N; }

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
if [ -n "$addresses" ]; then
    for kind_of_file in config speed width driver; do section device "$kind_of_file" "$kind_of_file"; done
fi
printf '%s end - 0\n' "$nonce"
