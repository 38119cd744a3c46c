# Wraps trainers that exit with 0 while Slurm ends their job, or while nobody knows whether it does.
# Source this after tests/lib.sh. Each job has its own nodes.
cluster() { "$REEL_SRC"/contrib/slurm-cluster "$@"; }
controller() { read -r pid _ < "$dir/c/run/slurmctld" && kill "$1" "$pid"; }
trap 'controller -CONT; cluster down --dir "$dir/c"; rm -rf "$dir"' EXIT
export REEL_SLURM_POLL_S=1 ASAN_OPTIONS=detect_leaks=0
cat > trainer << 'S'
#!/bin/bash
. "$REEL_SRC/tests/lib/nap.sh"
# This trainer waits at step 90 of 400, and exits with 0 when the file `end` exists or on SIGTERM. From
# the second attempt on it is done at once; with EARLY it then prints no step.
trap 'exit 0' TERM
[ "$REEL_ATTEMPT" -eq 1 ] || { [ -n "$EARLY" ] || echo "step 400"; exit 0; }
echo "step 90"; touch "$CASE/up"
until [ -e "$CASE/end" ]; do $nap 0.1 || :; done
S
chmod +x trainer
cluster up --dir "$dir/c" --nodes "$nodes" --cpus 2 --gpus 0 --grace 300 --kill-wait 60 \
    --message-timeout 15 > out 2> err; ok $? "a cluster"
eval "$(cluster env --dir "$dir/c")"
vias='helper commands'; [ -e "$REEL_BIN/reel-slurm" ] || vias=commands
declare -A id
submit() { # NAME OPTIONS-OF-WRAP-AND-LAUNCHER
    mkdir -p "$1"
    CASE=$dir/$1 sbatch -N1 -n1 --exclusive --requeue --open-mode=append -o "$1.out" -J "$1" \
        --wrap "exec $reel wrap --name $1 --notice none $2 $dir/trainer" > "$1.sub" 2> err
    id[$1]=$(awk '{print $4}' "$1.sub")
}
json() {
    "$reel" status "$1" --json 2> /dev/null | sed -n "s/.*\"$2\": \"\([a-z_]\+\)\".*/\1/p" |
        tr '\n' ' '
}
said() { local rc=$?; cp "$1.out" out; ok $rc "$1: $2"; }
ended_by() { local re="^($2) \$"; [[ "$(json "$1" cause)" =~ $re ]]; }
# caused NAME PATTERN WORDS: waits until the cause of the attempt matches PATTERN
caused() { wait_for 120 ended_by "$1" "$2"; said "$1" "$3 ($(json "$1" cause))"; }
steps="--step-pattern 'step ([0-9]+)' --steps 400"
