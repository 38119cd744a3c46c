# Starts runs on a private cluster, which somebody then cancels or signals. Scripts without a cluster
# source this after tests/lib.sh. id[RUN] is the job of a run; vias are the ways to ask Slurm.
cluster() { "$REEL_SRC"/contrib/slurm-cluster "$@"; }
trap 'cluster down --dir "$dir/c"; rm -rf "$dir"' EXIT
mkdir "$dir/bin"
for p in reel reel-slurm; do [ -e "$REEL_BIN/$p" ] && ln -s "$REEL_BIN/$p" "$dir/bin/"; done
ln -s "$REEL_BIN/tests/lib/reel-train" "$dir/bin/reel-train"
export PATH=$dir/bin:$PATH REEL_BIN_DIR=$dir/bin REEL_SLURM_HELPER=$REEL_BIN/reel-slurm
export REEL_SLURM_POLL_S=1 ASAN_OPTIONS=detect_leaks=0
cat > bin/trainer << 'S'
#!/bin/bash
# On a signal this trainer saves and exits with 0, dies of the signal, or waits for the file `go` and
# exits.
told() {
    echo saved
    [ "$1" != holds ] || until [ -e go ]; do $nap 0.1; done
    exit 0
}
if [ "$1" = dies ]; then nap=sleep
else . "$REEL_SRC/tests/lib/nap.sh"; trap 'told "$@"' TERM USR1
fi
echo "begun $1"
while :; do $nap 0.1; done
S
chmod +x bin/trainer
cluster up --dir "$dir/c" --nodes 6 --cpus 4 --gpus 0 --kill-wait 60 > out 2> err; ok $? "a cluster"
eval "$(cluster env --dir "$dir/c")"
own() { # NAME VIA LAUNCH-OPTIONS [RESOURCES]
    printf \
        '{"schema": "reel.run/1", "name": "%s", "model": "dit-tiny",
         "stages": [{"data": "synthetic:1x4x4", "gbs": 2, "steps": 100000}], "resources": {%s}}\n' \
        "$1" "${4:-\"cores_per_rank\": 1}" > "$1.json"
    REEL_STUB_STEP_S=0.05 REEL_SLURM_VIA=$2 reel launch "$1.json" \
        --scheduler slurm $3 > "$1.out" 2> "$1.err" < /dev/null
}
wrapped() { # NAME VIA NOTICE TRAINER
    REEL_SLURM_VIA=$2 sbatch --requeue --open-mode=append -o "$1.out" --job-name "$1" \
        --wrap "exec reel wrap --name $1 --notice $3 -- trainer $4" > "$1.sub" 2> "$1.err"
}
vias='helper commands'; [ -e "$REEL_BIN/reel-slurm" ] || vias=commands
begun() {
    case $1 in
    saves-* | dies-* | holds-*) grep -qs begun "$1.out" ;;
    *) [ -n \
    "$(find home/runs/"$(cat home/names/"$1")"/events -name 'rank0.a1.*' -size +2k 2> /dev/null)" \
    ] ;;
    esac
}
job() { squeue -h -t R -n "$1" -o %i; }
field() { scontrol show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p"; }
over() { [ "$(field "$1" JobState)" = CANCELLED ]; }
causes() {
    reel db ingest > out 2> err
    reel db query "select cause from v_attempt where job_id = '${id[$1]}' order by attempt" |
        tail -n +2 | tr '\n' ' '
}
word() { reel status "$1" | awk 'NR == 1 {print $3}'; }
named() {
    case $1 in
    saves-* | dies-*) basename \
    "$(grep -l "\"$1\"" home/runs/*/wrap.json | head -1 | xargs dirname)" ;;
    *) echo "$1" ;;
    esac
}
declare -A id
