#!/bin/sh
# A virsh over a directory, $FAKE: domains/<uuid>.xml and .state; what it is told by files there:
#   gate-VERB      wait at VERB until the file is gone (and say so in at-VERB)
#   fail-VERB      print its text as the error, status 1
#   ghost          a uuid that only the first list shows
#   extra          more lines for every list
#   unkillable     destroy says done, and does nothing
printf '%s\n' "$*" >>"$FAKE/calls"
verb=$1 operand=${2-}
[ "$verb" != create ] || text=$(cat "$operand") # as the real one: read at once, whatever becomes of the file
if [ -e "$FAKE/gate-$verb" ]; then
    : >"$FAKE/at-$verb"
    while [ -e "$FAKE/gate-$verb" ]; do sleep 0.02; done
fi
if [ -e "$FAKE/delay-$verb" ]; then sleep "$(cat "$FAKE/delay-$verb")"; fi
if [ -e "$FAKE/fail-$verb" ]; then
    cat "$FAKE/fail-$verb" >&2
    exit 1
fi
missing() {
    echo "error: failed to get domain '$operand'" >&2
    exit 1
}
xml=$FAKE/domains/$operand.xml
case $verb in
    list)
        for file in "$FAKE"/domains/*.xml; do
            [ ! -e "$file" ] || basename "$file" .xml
        done
        if [ -e "$FAKE/ghost" ]; then cat "$FAKE/ghost" && rm "$FAKE/ghost"; fi
        if [ -e "$FAKE/extra" ]; then cat "$FAKE/extra"; fi
        echo
        ;;
    domstate)
        [ -e "$xml" ] || missing
        cat "$FAKE/domains/$operand.state"
        echo
        ;;
    dumpxml)
        [ -e "$xml" ] || missing
        cat "$xml"
        ;;
    metadata)
        [ -e "$xml" ] || missing
        id=$(sed -n "s/.*<fleet:validation .*id=['\"]\([^'\"]*\)['\"].*/\1/p" "$xml")
        if [ -z "$id" ] || [ "$3" != https://fleet-revalidation.invalid/domain/1 ]; then
            echo 'error: metadata not found: Requested metadata element is not present' >&2
            exit 1
        fi
        printf '<validation id="%s"/>\n\n' "$id"
        ;;
    create)
        uuid=$(printf '%s\n' "$text" | sed -n 's:.*<uuid>\(.*\)</uuid>.*:\1:p')
        if [ -e "$FAKE/domains/$uuid.xml" ]; then
            printf 'error: Failed to create domain from %s\nerror: operation failed: domain already exists\n' "$operand" >&2
            exit 1
        fi
        echo running >"$FAKE/domains/$uuid.state"
        printf '%s\n' "$text" >"$FAKE/domains/.new.$uuid"
        mv "$FAKE/domains/.new.$uuid" "$FAKE/domains/$uuid.xml"
        printf "Domain '%s' created from %s\n\n" "$uuid" "$operand"
        if [ -e "$FAKE/gate-created" ]; then
            : >"$FAKE/at-created"
            while [ -e "$FAKE/gate-created" ]; do sleep 0.02; done
        fi
        ;;
    destroy)
        [ -e "$xml" ] || missing
        [ -e "$FAKE/unkillable" ] || rm -f "$xml" "$FAKE/domains/$operand.state"
        printf "Domain '%s' destroyed\n\n" "$operand"
        ;;
    *)
        echo "error: unknown command: '$verb'" >&2
        exit 1
        ;;
esac
