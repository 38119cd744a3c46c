# Extends a run and changes its learning rate, with both ways to ask Slurm at the same time. Source
# this after tests/lib.sh. The script defines both(), and `checks`, the number of checks in it.
cluster() { "$REEL_SRC"/contrib/slurm-cluster "$@"; }
trap 'kill $(jobs -p) 2> /dev/null; cluster down --dir "$dir/c"; rm -rf "$dir"' EXIT
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all its memory
export REEL_SLURM_POLL_S=1
backends_draw
held_trainer "$dir/held" # the first attempt waits at step 20 for the request to save
export REEL_BIN_DIR=$dir/held
train=$REEL_BIN/reel-train
model='{"schema": "reel.model/1", "name": "mini", "family": "dit", "layers": 1, "hidden": 32,
 "heads": 2, "kv_heads": 2, "ffn": 64,
 "text_width": 16, "text_len": 4, "adaln": "full", "patch_t": 1, "patch_h": 2, "patch_w": 2,
 "latent_channels": 16}'
run_file() { # NAME STEPS RATE
    printf \
        '{"schema": "reel.run/1", "name": "%s", "model": %s,
         "stages": [{"data": "synthetic:1x4x4", "gbs": 2, "steps": %d}],
 "adamw": {"lr": %s}, "schedule": {"warmup_steps": 2}, "resources": {"cores_per_rank": 1}}\n' "$1" \
 "$model" "$2" "$3" > "$1.json"
}
launch() { "$reel" launch "$1.json" --scheduler slurm "${@:2}" > out 2> err < /dev/null; }
run_of() { echo "$REEL_HOME/runs/$(cat "$REEL_HOME/names/$1")"; }
word() { "$reel" status "$1" 2> /dev/null | awk 'NR == 1 {print $3}'; }
job_of() { "$reel" status "$1" --json | sed -n 's/.*"job_id": "\([0-9]*\)".*/\1/p' | tail -1; }
asks() { "$reel" db query "$1" | tail -n +2 | tr '\t\n' ' ;'; }
# told NAME FROM-STEPS STEPS: checks a run whose second attempt had more steps and another learning
# rate
told() {
    local folder run steps first; folder=$(run_of "$1") run=$(cat "$REEL_HOME/names/$1")
    "$reel" db ingest > out 2> err
    steps="from v_step where run = '$run' and not replayed"
    first=$(asks "select min(step) from v_step where run = '$run' and attempt = 2")
    first=${first%;}
    grep -qas '"ev": "extended"' "$folder"/events/*.evlog &&
        grep -qas '"ev": "changed"' "$folder"/events/*.evlog
    ok $? "$1: extended and changed are in its events"
    asks "select key, old, new, attempt from v_change where run = '$run' order by key" > changes
    [ "$(cat changes)" = "adamw.lr 0.001 0.002 2;stages[0].steps $2 $3 2;" ]
    ok $? "$1: v_change tells both ($(cat changes))"
    [ "$(asks "select count(*), count(distinct step), min(step), max(step) $steps")" = \
        "$3 $3 0 $(($3 - 1));" ]; ok $? "$1: every step once"
    [ "$(asks "select min(lr), max(lr) $steps and step between 1 and $first - 1")" = \
        '0.001 0.001;' ]; ok $? "$1: the steps before $first have the old rate"
    [ "$(asks "select count(*), min(lr), max(lr) $steps and step >= $first")" = \
        "$(($3 - first)) 0.002 0.002;" ]; ok $? "$1: those from $first on the new one"
    "$train" train --run "$folder/run.json" --run-dir "$1.hand" > out 2> err &&
        "$train" ckpt diff "$1.hand/ckpt/step-000000$3" "$folder/ckpt/step-000000$3" > out \
        2> err; ok $? "$1: its end is that of a training by hand, bit by bit"
}
cluster up --dir "$dir/c" --nodes 2 --cpus 4 --gpus 0 --kill-wait 60 --requeue-delay 5 > out 2> err
ok $? "a cluster"
eval "$(cluster env --dir "$dir/c")"
part() {
    mkdir "$dir/$1" && cd "$dir/$1" || return; by "$1"; export REEL_HOME=$PWD/home; both > tap
}
part 0 & one=$!; part 1 & wait $one $!
for p in 0 1; do
    while read -r line; do
        case $line in
        'ok '*) n=$((n + 1)); echo "ok $n - ${line#*- }" ;;
        'not ok '*) n=$((n + 1)); echo "not ok $n - ${line#*- }" ;;
        *) echo "$line" ;;
        esac
    done < "$p/tap"
    [ "$(grep -c '^\(not \)\?ok' "$p/tap")" -eq $checks ]
    ok $? "part $p was gone through ($(grep -c '^\(not \)\?ok' "$p/tap"))"
done
wait_for 100 eval '! squeue -h | grep -q .'; ok $? "no job is left"
echo "1..$n"
