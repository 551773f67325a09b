# FILE...   Detached by image.sh, with digests/lock open as file 9 for as long as it reads.
kept=$state/digests

mark_of() { stat -L -c '%d-%i-%s-%.9Y' -- "$1"; }

for file in "$@"; do
    mark=$(mark_of "$file") || continue
    [ ! -f "$kept/$mark" ] || continue
    if said=$({ nice -n 10 sha256sum <"$file"; } 2>&1); then
        # a file that is still being copied is another one by now: it is read again when somebody asks again
        [ "$(mark_of "$file")" = "$mark" ] || continue
        rm -f "$kept/$(stat -L -c '%d-%i' -- "$file")-"*
        printf '%s\n' "${said%% *}" >"$kept/new" && mv "$kept/new" "$kept/$mark"
    else
        printf '%s' "$said" | tr '\n' ' ' | head -c 500 >"$kept/$mark.failed"
    fi
done
