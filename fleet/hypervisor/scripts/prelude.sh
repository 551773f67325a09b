# Comes before every script of this directory. POSIX sh, sed, GNU coreutils, flock and setsid of util-linux; no Python.
# Exit status: 0 done, 3 fenced, 4 not our domain, 5 busy (again later), 6 virsh or the host said no; words on stderr.
set -u
umask 022
# Decisions never hang on words, but people read them: one language. Without a default a user who is not root gets a
# libvirt of its own, with no domains in it.
export LC_ALL=C LIBVIRT_DEFAULT_URI="${LIBVIRT_DEFAULT_URI:-qemu:///system}"
state=${FLEET_STATE:-/var/lib/fleet}
virsh_limit=60 # seconds; most scripts are told
metadata_uri=https://fleet-revalidation.invalid/domain/1

fail() { # STATUS WORDS...
    status=$1
    shift
    printf '%s\n' "$*" >&2
    exit "$status"
}

# It becomes part of file names, of a sed command and of the domain's XML.
case $state in
    *[!A-Za-z0-9/._-]* | [!/]* | '') fail 6 'FLEET_STATE on this host must be an absolute path of letters, digits, / . _ and -' ;;
esac

need_virsh() { command -v virsh >/dev/null 2>&1 || fail 127 'virsh: not found'; }

# A virsh call can hang for minutes while another domain with many devices starts: libvirt holds that domain's lock.
ask() { timeout -k 2 "$virsh_limit" virsh "$@" </dev/null; }

listed() { # UUID: 0 listed, 1 not, 2 the list cannot be had
    all=$(ask list --all --uuid)
    list_status=$?
    [ "$list_status" -eq 0 ] || return 2
    case "
$all
" in
        *"
$1
"*) return 0 ;;
    esac
    return 1
}

no_list() { # after `listed` said 2
    [ "$list_status" -ne 124 ] || fail 5 'virsh does not answer: libvirt is still at an earlier act'
    fail 6 'virsh does not list the domains'
}

# libvirt itself looks up the element by our namespace, so that no text, comment or CDATA in a foreign domain can pose as it.
ours() { # UUID VALIDATION
    case $(ask metadata "$1" "$metadata_uri" 2>/dev/null) in
        *" id=\"$2\""*) return 0 ;;
    esac
    return 1
}

read_fence() { # sets fence_run and fence_epoch; 1 when the file is damaged. Absent and empty are 0 0: nobody was here
    fence_run='' fence_epoch=''
    # `read` without a newline at the end reads, and says 1
    if [ -e "$state/fence" ]; then read -r fence_run fence_epoch <"$state/fence" || :; fi
    fence_run=${fence_run:-0} fence_epoch=${fence_epoch:-0}
    case $fence_run$fence_epoch in *[!0-9]*) return 1 ;; esac
    [ ${#fence_run} -le 18 ] && [ ${#fence_epoch} -le 18 ]
}

write_fence() { # RUN EPOCH
    printf '%s %s\n' "$1" "$2" >"$state/fence.new" && mv "$state/fence.new" "$state/fence"
}

# Scripts that answer in sections have a NONCE, random and new: nothing in a domain's XML, a file or a tool's words can look
# like the line that begins one.
section() { # KIND KEY COMMAND...: a line "NONCE KIND KEY STATUS", then what it said
    kind=$1 key=$2
    shift 2
    said=$("$@")
    status=$?
    printf '%s %s %s %s\n%s\n' "$nonce" "$kind" "$key" "$status" "$said"
    return "$status"
}
