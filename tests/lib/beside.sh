# Tries every option of reel-train train together with --run or with --plan. Source this after
# tests/lib/train.sh.
beside() { # NAME WHAT CODE PATTERN ARGUMENT…
    local name=$1 what=$2 code=$3 pattern=$4 rc; shift 4
    rm -rf row; run train --run-dir row "$@"; rc=$?
    [ $rc -eq "$code" ] && cat out err row/events/rank0.a* 2> /dev/null | grep -aq -- "$pattern"
    ok $? "--$name $what: $rc, ${pattern:-taken}"
}
# beside_rows WHAT OPTION...: tries each row of standard input together with these options. A row
# has an option, its value, the exit status, and a pattern that must occur in the output or in the
# events. A row that begins with + runs without --trial. Every option must have a row.
beside_rows() {
    local what=$1 name value wants mode gbs code pattern; shift
    while IFS='|' read -r name value wants; do
        name=${name// /} value=${value// /} mode="--trial --steps 2"
        [ "${name#+}" = "$name" ] || mode="--steps 1"
        name=${name#+}; echo "$name" >> named
        case $what-$name in plan-gbs | run-*) gbs= ;; *) gbs="--gbs 2" ;; esac
        read -r code pattern <<< "$wants"
        beside "$name" "beside --$what" "$code" "$pattern" \
            "$@" $gbs $mode "--$name${value:+=$value}"
    done
    "$train" train --help | sed -n 's/^      --\([a-z-]*\).*/\1/p' | grep -vx help | sort > listed
    sed 's/^no-//' named | sort -u > named.once
    diff listed named.once > out; ok $? "no option is without a row"
}
