# NONCE TOOLS FILES FILE... ADDRESS...   What a test VM needs of this host, beside libvirt. Writes nothing, switches nothing.
# TOOLS: names, by spaces. FILES: how many of the words after it are files, the rest are PCI devices.
nonce=$1 tools=$2 files=$3
shift 3
root=${FLEET_ROOT:-}
bus=$root/sys/bus/pci

who() {
    id -un
    id -u
    id -Gn
}

found() { for tool in $tools; do if command -v "$tool" >/dev/null 2>&1; then echo "$tool"; fi; done; }

# The nearest folder that is there decides: the first test VM makes the rest. `-w` asks the kernel, which knows of a read-only
# file system, where root may write everything.
folder() {
    at=$state
    while [ ! -e "$at" ]; do at=${at%/*} at=${at:-/}; done
    [ -d "$at" ] || fail 20 "$at is no directory"
    [ -w "$at" ] && [ -x "$at" ] || fail 13 "$at"
    echo "$at"
    df -P -k "$at" | tail -n 1
}

kernel_log() { # as kernel_log.sh chooses
    if [ -n "$(journalctl -k -q -n 1 --no-pager 2>/dev/null)" ]; then
        echo journalctl
    else
        dmesg --time-format iso >/dev/null && echo dmesg
    fi
}

vfio() {
    if [ -d "$bus/drivers/vfio-pci" ]; then
        echo loaded
    else
        grep -sq vfio-pci "$root/lib/modules/$(uname -r)/modules.dep" "$root/lib/modules/$(uname -r)/modules.builtin" &&
            echo available
    fi
}

pages() { # SIZE_KIB TOTAL FREE
    for pool in "$root"/sys/kernel/mm/hugepages/hugepages-*kB; do
        [ -e "$pool/nr_hugepages" ] || continue
        size=${pool##*hugepages-}
        echo "${size%kB} $(cat "$pool/nr_hugepages") $(cat "$pool/free_hugepages")"
    done
}

# A file on a storage server that is away hangs whoever asks about it.
file_facts='
    file=$1
    stat -L -c "%f %s" -- "$file" || exit
    if [ -r "$file" ]; then head -c 4 -- "$file" | od -An -v -tx1; else echo unreadable; fi
    at=$(readlink -f -- "$file")
    while [ "$at" != / ]; do
        at=$(dirname -- "$at")
        stat -c "%a %u %g %n" -- "$at"
    done'

driver_of() { # ADDRESS
    if [ -L "$bus/devices/$1/driver" ]; then basename "$(readlink "$bus/devices/$1/driver")"; else echo -; fi
}

device() { # ADDRESS: its driver and its IOMMU group, then a line for each member of that
    at=$bus/devices/$1
    [ -d "$at" ] || return 2
    group=-
    [ ! -L "$at/iommu_group" ] || group=$(basename "$(readlink "$at/iommu_group")")
    echo "$(driver_of "$1") $group"
    for member in "$at"/iommu_group/devices/*; do
        [ -e "$member" ] || continue
        member=${member##*/}
        echo "$member $(cat "$bus/devices/$member/class") $(driver_of "$member")"
    done
}

section who - who
section tools - found
section clock - date +%s.%N
section state "$state" folder
section fence - cat "$state/fence" 2>/dev/null
section log - kernel_log
section kvm - ls "$root/dev/kvm"
section iommu - ls "$root/sys/kernel/iommu_groups"
section vfio - vfio
section memory - grep -E '^Mem(Total|Available):' "$root/proc/meminfo"
section pages - pages
section cpus - cat "$root/sys/devices/system/cpu/online"
number=0
while [ "$number" -lt "$files" ]; do
    section file "$number" timeout -k 1 3 sh -c "$file_facts" fleet-file "$1" 2>/dev/null
    shift
    number=$((number + 1))
done
for address in "$@"; do section device "$address" device "$address"; done
printf '%s end - 0\n' "$nonce"
