# NONCE   Which GPUs, NVSwitches, network cards and NVMe disks the host shows, and what can be learned of each from outside a VM.
nonce=$1
root=${FLEET_ROOT:-}
bus=$root/sys/bus/pci/devices

first() { head -n 1 "$1" 2>/dev/null || echo -; }

functions() { # ADDRESS CLASS VENDOR DEVICE DRIVER
    for at in "$bus"/*; do
        [ -e "$at/class" ] || continue
        class=$(first "$at/class")
        case $class in
            0x0300* | 0x0302* | 0x0680* | 0x0207* | 0x0200* | 0x0108*) ;;
            *) continue ;;
        esac
        driver=-
        [ ! -L "$at/driver" ] || driver=$(basename "$(readlink "$at/driver")")
        echo "${at##*/} $class $(first "$at/vendor") $(first "$at/device") $driver"
    done
}

ports() { # ADDRESS DEVICE PORT LINK_LAYER GID STATE...
    for port in "$bus"/*/infiniband/*/ports/*; do
        [ -e "$port/link_layer" ] || continue
        device=${port%/ports/*}
        address=${device%/infiniband/*}
        echo "${address##*/} ${device##*/} ${port##*/} $(first "$port/link_layer") $(first "$port/gids/0") $(first "$port/state")"
    done
}

vpd() { # ADDRESS: the vital product data, where the card has any; some cards take seconds to say that they have none
    timeout -k 1 0.5 head -c 4096 "$bus/$1/vpd" | od -An -v -tx1
}

neighbour() { # DEVICE PORT: who is at the other end of the cable, by the subnet's own management packets
    timeout -k 1 0.5 smpquery -C "$1" -P "$2" -D nodeinfo 0,1 && timeout -k 1 0.5 smpquery -C "$1" -P "$2" -D nodedesc 0,1
}

section functions - functions
for gpu in $(functions | grep -E ' 0x030[02].. 0x10de ' | cut -d ' ' -f 1); do
    [ ! -e "$bus/$gpu/vpd" ] || section vpd "$gpu" vpd "$gpu"
done
if command -v nvidia-smi >/dev/null 2>&1; then
    section smi - timeout -k 1 4 nvidia-smi --query-gpu=pci.bus_id,serial,name --format=csv,noheader
fi
section ports - ports
if command -v smpquery >/dev/null 2>&1; then
    ports | grep ' InfiniBand .*ACTIVE' | while read -r _ device port _; do
        section neighbour "$device/$port" neighbour "$device" "$port"
    done
fi
if command -v lldpctl >/dev/null 2>&1; then section lldp - timeout -k 1 3 lldpctl -f keyvalue; fi
for net in "$bus"/*/net/*; do
    [ ! -e "$net" ] || section net "${net##*/}" echo "$net"
done
printf '%s end - 0\n' "$nonce"
