# Checks how a run that has stopped can continue. Source this after tests/lib.sh and
# tests/lib/launch.sh or wrap.sh.
launch() { # NAME STEPS [RESOURCES [OPTIONS]]: launches a run of reel's own trainer
    run_file "$1" "$2" "${3:-}"; "$reel" launch "$1.json" -dq ${4:-} > out 2> err
    ok $? "$1: launched"
}
word_is() { "$reel" status "$1" 2> /dev/null | awk 'NR == 1 {print $3}' | grep -qx "$2"; }
# agent RUN: prints the pid of the agent of its first attempt, from its claim
agent() { sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "home/runs/$(cat "home/names/$1")/claims/attempt-1"; }
# killed RUN: kills its guard, and with it agent and trainer, so that no process can record the end
killed() {
    local agent guard; agent=$(agent "$1"); guard=$(ps -o ppid= -p "${agent:-0}")
    [ "${guard:-1}" -gt 1 ] && kill -KILL $guard; ok $? "$1: its guard is killed"
}
# ways RUN STATE RETRY RESUME: checks `reel retry` and `reel resume` in this state. RETRY and RESUME
# are "works", or a pattern of the refusal.
ways() {
    local c want rc
    wait_for 30 word_is "$1" "$2"; ok $? "$1 is $2"
    for c in retry resume; do
        want=$3; [ $c = retry ] || want=$4
        "$reel" $c "$1" --dry-run > out 2> err; rc=$?
        if [ "$want" = works ]; then
            [ $rc -eq 0 ] && grep -q "^would .*'$1'.*, which is $2$" out
            ok $? "$1, $2: $c would let it go on"
        else
            (exit $rc); refuses "$1, $2: $c --dry-run names what does" 1 "'$1' is $2: .*$want"
            "$reel" $c "$1" > out 2> err; refuses "$1, $2: so does $c" 1 "'$1' is $2: .*$want"
        fi
    done
}
