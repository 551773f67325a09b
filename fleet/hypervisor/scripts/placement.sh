# VALIDATION UUID LIMIT   Six lines (start at work?, domain's state, rc, closed by, refused because, asked for?), then virsh's
# words.
validation=$1 uuid=$2 virsh_limit=$3
dir=$state/$validation
need_virsh

# While a start is at work virsh is not asked: it may answer only when the domain is up.
if [ -e "$dir/start.lock" ] && ! flock -n -s "$dir/start.lock" true; then
    printf 'held\n\n\n\n\n\n'
    exit 0
fi
domain=$(ask domstate "$uuid" 2>/dev/null) || { # gone, or no answer: the list tells
    domain=
    listed "$uuid"
    case $? in
        0) fail 5 "virsh does not tell of domain $uuid yet" ;;
        2) no_list ;;
    esac
}
asked=
[ ! -e "$dir/domain.xml" ] || asked=yes
for line in free "$domain" "$(cat "$dir/rc" 2>/dev/null)" "$(cat "$state/closed/$validation" 2>/dev/null)" \
    "$(cat "$dir/refused" 2>/dev/null)" "$asked"; do
    printf '%s\n' "$line" | tr '\n' ' '
    echo
done
[ ! -e "$dir/place.log" ] || tail -c 2000 "$dir/place.log"
