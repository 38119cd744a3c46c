# Starts a private Slurm cluster, and asks about the runs on it. Source this after tests/lib.sh. The
# command in `ending` runs before the cluster is taken down.
ending=:
cluster() { "$REEL_SRC"/contrib/slurm-cluster "$@"; }
trap 'eval "$ending"; cluster down --dir "$dir/c"; rm -rf "$dir"' EXIT
export REEL_SLURM_POLL_S=1 REEL_SLURM_HELPER=$REEL_BIN/reel-slurm ASAN_OPTIONS=detect_leaks=0
cluster_up() { # OPTIONS...
    cluster up --dir "$dir/c" --gpus 0 "$@" > out 2> err; ok $? "a cluster"
    eval "$(cluster env --dir "$dir/c")"
}
# Fills ./bin with the programs and the stand-in trainer of tests/lib, which jobs then run.
stand_in() {
    local p
    mkdir -p bin
    for p in reel reel-slurm; do [ ! -e "$REEL_BIN/$p" ] || ln -s "$REEL_BIN/$p" bin/; done
    ln -s "$REEL_BIN/tests/lib/reel-train" bin/reel-train
    export PATH=$dir/bin:$PATH REEL_BIN_DIR=$dir/bin
    reel=$dir/bin/reel
}
vias='helper commands'; [ -e "$REEL_BIN/reel-slurm" ] || vias=commands
dir_of() { echo "home/runs/$(cat "home/names/$1")"; }
state_is() {
    [ "$("$reel" status "$1" --json 2> /dev/null | sed -n 's/.*"state": "\([a-z]*\)".*/\1/p')" = \
        "$2" ]
}
trains() { "$reel" status "$1" > out 2> err && grep -q ' training ' out; }
number() { # RUN KEY: prints the last value of this key in the run's status
    local s
    s=$("$reel" status "$1" --json 2> /dev/null | sed -n "s/.*\"$2\": \(-*[0-9]*\).*/\1/p" | tail -1)
    echo "${s:-0}"
}
past() { [ "$(number "$1" steps_done)" -gt "$2" ]; } # RUN STEPS: tells whether more steps are done
causes() { "$reel" status "$1" --json | sed -n 's/.*"cause": "\([a-z_]*\)".*/\1/p' | tr '\n' ' '; }
no_job() { ! squeue -h -n "$1" | grep -q .; } # NAME: tells whether Slurm lists no job, not even an ended one
over() { [ -z "$(squeue -h -t PD,R,CG -n "$1")" ]; }
