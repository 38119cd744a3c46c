# Tells the processes of an attempt by a node agent, and looks who has heard. Source this after
# tests/lib.sh.
run=$dir/home/runs/$(printf %032x $$) # of this script alone: each agent finds all that have its id
mkdir -p "$run/claims" "$run/events"
cleanup() { pkill -9 -f "$dir/pid" 2> /dev/null; rm -rf "$dir"; }
trap cleanup EXIT
# A trainer, and what starts one, are copies of a shell that do not pass for a shell.
for name in trainer torchrun; do cp "$(readlink -f "$(command -v bash)")" $name; done
hears() { # NAME [COMMAND]: a process that notes that it was told, and runs COMMAND beside it
    echo "trap 'echo $1 >> $dir/told' USR1; echo \$\$ > $dir/pid.$1"
    echo "${2:-:} & while :; do sleep 0.5; done"
}
deaf() { echo "echo \$\$ > $dir/pid.$1; ${*:2} & while :; do sleep 0.5; done"; } # NAME COMMAND
quoted() { sed "s/'/'\\\\''/g"; }
below() { echo "${*:2} '$(hears "$1" | quoted)'"; } # NAME PROGRAM...: COMMAND that hears
start() { env "$@" < /dev/null > /dev/null 2>&1 & disown; }
listens() {
    [ "/proc/$node/exe" -ef "$reel" ] &&
        (($(sed -n 's/^SigBlk:\t/0x/p' "/proc/$node/status") >> 14 & 1))
}
attempt() { # NUMBER: what is started from now on is this attempt's
    : > told; mark="REEL_TRAINER=$(basename "$run").$1" number=$1
}
up() { for p; do wait_for 20 test -s "pid.$p" || return; done; }
all_live() { local p; for p in $(cat pid.*); do kill -0 "$p" || return; done; }
told_are() { [ "$(sort -u told | wc -l)" -ge "$1" ]; }
# told NAMES WHAT: tells them by a node agent, to whose environment JOB is added, until these have
# heard and a rank that begins then has heard too, and checks that nobody else has and all live.
told() {
    local want=$1
    env ${JOB:+$JOB} "$reel" node-agent --run-dir "$run" --attempt $number --signal 10 \
        > out 2> err &
    node=$!; wait_for 20 listens; kill -TERM $node
    wait_for 20 told_are "$(wc -w <<< "$want")"
    start $mark ${LATE-RANK=99} bash -c "$(hears late)"
    wait_for 20 grep -qx late told; kill -USR2 $node; wait $node; late=$(cat pid.late)
    [ "$(sort told | grep -vx late | tr '\n' ' ')" = "$want " ] && all_live
    ok $? "$2 ($(sort told | tr '\n' ' '))"; kill -9 $(cat pid.*) 2> /dev/null; rm pid.*
}
