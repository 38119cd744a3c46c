# Wraps trainers that get a signal to save, on a private cluster of $nodes nodes with a grace time,
# started with the options in $cluster_has too. Source this after tests/lib.sh. Each rank's signal
# handler records when it ran. Half of the cases ask Slurm by its commands, half by reel-slurm.
cluster() { "$REEL_SRC"/contrib/slurm-cluster "$@"; }
trap 'cluster down --dir "$dir/c"; rm -rf "$dir"' EXIT
export ASAN_OPTIONS=detect_leaks=0
backends_draw
cat > rank << 'S'
#!/bin/bash
# This is a rank at step 90 of 400. It records when it gets the signal and when it saves, and exits
# with 0 once the file `end` exists; with HEARS=none it dies of the signal. The second attempt is
# done at once.
if [ "$REEL_ATTEMPT" -gt 1 ]; then echo "step 400"; exit 0; fi
NO=${NO:-$SLURM_PROCID}
[ "$HEARS" = none ] || trap 'echo "$EPOCHREALTIME" >> "$CASE/told.$NO"' $HEARS
[ "$HEARS" != USR1 ] || trap '' TERM
exec 3<> <(:)
echo "step 90"; touch "$CASE/up.$NO"
until [ -e "$CASE/end" ] && [ -s "$CASE/told.$NO" ]; do read -t 0.2 -u 3; done
echo "$EPOCHREALTIME" > "$CASE/saved.$NO"
exit 0
S
chmod +x rank
cluster up --dir "$dir/c" --nodes "$nodes" --cpus 2 --gpus 0 --grace 15 --kill-wait 60 \
    ${cluster_has:-} > out 2> err
ok $? "a cluster"
eval "$(cluster env --dir "$dir/c")"
declare -A id_of
# `starts`: the command that starts the ranks; `allocation`: sbatch's options for a job of its own
# shape
submit() { # NAME NODES SIGNAL-IT-HEARS NUMBER-OF-PART OPTIONS-OF-WRAP...
    mkdir "$1"; by "$4"
    printf '#!/bin/bash\nexec %s wrap --name %s %s --step-pattern "%s" --steps 400 -- %s\n' \
        "$reel" "$1" "${*:5}" 'step ([0-9]+)' "${starts:-srun --kill-on-bad-exit=0 $dir/rank}" > "$1.sh"
    CASE=$dir/$1 HEARS=$3 sbatch --requeue --open-mode=append -o "$dir/$1.out" --job-name "$1" \
        ${allocation:--N"$2" --ntasks-per-node=2 --exclusive} "$1.sh" > "$1.sub" 2>&1 ||
        cat "$1.sub" >&2
    id_of[$1]=$(awk '{print $4}' "$1.sub")
}
files() { [ "$(ls "$1/$2".* 2> /dev/null | wc -l)" -eq "$3" ]; }
run_dir() { echo "$REEL_HOME/runs/$(cat "$REEL_HOME/names/$1" 2> /dev/null)"; }
events() { cat "$(run_dir "$1")"/events/*.a1.evlog 2> /dev/null | grep -ao "\"ev\": \"$2\"[^}]*"; }
walls() { events "$1" "$2" | sed -n 's/.*"wall": \([0-9.]*\).*/\1/p' | sort -g; }
from_to() { awk -v from="$1" -v to="$2" 'BEGIN { printf("%.2f s", to - from) }'; }
nodes_with() { [ "$(events "$1" "$2" | grep -o '"node": "[^"]*"' | sort -u | wc -l)" -eq "$3" ]; }
# seen NAME WHAT: reports the result of the previous command, with the run's output if it failed.
seen() { local rc=$?; show "$1"; ok $rc "$1: $2"; }
show() { cp "$1.out" out 2> /dev/null; events "$1" '[a-z_]*' | cut -c 1-200 > err; }
# listen NAME NODES: tells whether the node agents of so many nodes listen for notices
listen() {
    [ "$(cat "$(run_dir "$1")/logs/nodes-1.log" 2> /dev/null | grep -c '^listens: ')" -eq "$2" ]
}
node_agents() { # NAME: prints the pids of its node agents
    local p
    for p in $(pgrep -f "node-agent --run-dir $(run_dir "$1") "); do
        [ "/proc/$p/exe" -ef "$reel" ] && echo "$p"
    done
}
# interrupted_once NAME WHAT: checks that the run is interrupted once, starts again and is done. The
# cause may be time_limit, because the batch process gets the same signal for a time limit.
interrupted_once() {
    local causes
    wait_for 90 eval '"$reel" status '"$1"' | grep -q " done "'
    "$reel" db ingest > out 2> err
    causes=$("$reel" db query \
            "select a.cause from v_attempt a join run r on r.run = a.run
                where r.name = '$1' order by a.attempt" | tail -n +2 | tr '\n' ' ')
    [[ "$causes" =~ ^(preempt|time_limit)\ done\ $ ]]
    seen "$1" "interrupted once, then done ($causes)"
}
