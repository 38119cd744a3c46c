# Wraps trainers that have not ended when their job must end. Source this after tests/lib/cluster.sh.
# The first word of a run's name selects how its trainer reacts to SIGTERM.
cat > trainer << 'S'
#!/bin/bash
. "$REEL_SRC/tests/lib/nap.sh"
# The trainer gets SIGTERM twice: from the agent before the limit, and from Slurm. The second attempt
# ends at once.
told() {
    echo "told $((n += 1))"
    case $1 in
    slow | gone) sleep 1000 ;;
    late) [ $n -lt 2 ] || { sleep 3; touch late.saved; exit 0; } ;;
    graced) [ $n -gt 1 ] || { sleep 28; touch $r.saved; exit 0; } ;; # longer than the kill wait
    esac
}
n=0 step=0 r=$1
[ "$REEL_ATTEMPT" -eq 1 ] || exit 0
trap "told ${1%-*}" TERM
touch $1.up
while :; do echo "iteration $((step += 1))/"; $nap 0.3; done
S
chmod +x trainer
runs=
backends_draw
i=0
submit() { # NAME OPTIONS-OF-SBATCH
    local r=$1; shift
    by $((i += 1))
    sbatch -n1 "$@" --requeue --open-mode=append -J $r -o $r.out --wrap \
        "exec $reel wrap --name $r --step-pattern 'iteration +([0-9]+)/' -- $dir/trainer $r" \
        > out 2> err
    ok $? "$r: a job, by $REEL_SLURM_VIA"
    runs="$runs $r"
}
preempt() { # NAMES: waits until these train, and takes their nodes
    local nodes r
    for r; do wait_for 60 test -e $r.up; ok $? "$r: trains"; done
    nodes=$(squeue -h -n "$(tr ' ' , <<< "$*")" -o %N | paste -sd,)
    sbatch -p high -w "$nodes" -N $# --exclusive -o /dev/null --wrap 'sleep 1' > out 2> err
    ok $? "$*: preempted"
}
causes_are() { # CAUSES: checks the causes of all runs, in the database and in status
    local causes r
    "$reel" db ingest > out 2> err
    for r in $runs; do
        causes=$("$reel" db query "select cause from v_attempt where run = '$(cat home/names/$r)'
            order by attempt" | tail -n +2 | tr '\n' ' ')
        [ "$causes" = "$1" ]; ok $? "$r: its causes in the database: $causes"
        causes=$("$reel" status $r --json | sed -n 's/.*"cause": "\([a-z_]*\)".*/\1/p' | tr '\n' ' ')
        [ "$causes" = "$1" ]; ok $? "$r: and in status: $causes"
    done
}
comes_back() { wait_for 200 state_is $1 'done'; ok $? "$1: comes back and is done"; }
