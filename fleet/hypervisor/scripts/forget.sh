# VALIDATION   Remove what is left of it but `closed/<validation>`: a late start must still be refused.
dir=$state/$1
[ -e "$state/closed/$1" ] || fail 6 "validation $1 is not closed on this host: tear it down first"
rm -rf "$dir" || fail 6 "cannot remove $dir"
