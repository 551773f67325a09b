# NONCE LIMIT NETWORK...   What libvirt can do here, and its networks. Asks only.
nonce=$1 virsh_limit=$2
shift 2
need_virsh

section version - ask version
section capabilities - ask capabilities
for network in "$@"; do
    section info "$network" ask net-info "$network" && section network "$network" ask net-dumpxml "$network"
done
printf '%s end - 0\n' "$nonce"
