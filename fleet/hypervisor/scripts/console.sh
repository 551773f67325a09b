# VALIDATION LIMIT   The end of the serial console. virtlogd rotates the file: what came before is in .0
dir=$state/$1
[ -e "$dir/console.log" ] || exit 0
set -- "$2" "$dir/console.log"
[ ! -e "$dir/console.log.0" ] || set -- "$1" "$dir/console.log.0" "$2"
limit=$1
shift
for file in "$@"; do [ -r "$file" ] || fail 6 "$file cannot be read"; done
cat "$@" | tail -c "$limit"
