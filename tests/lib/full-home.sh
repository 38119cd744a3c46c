# Ends the jobs of runs whose home has no room for any event. Source this after tests/lib.sh. The name
# of a run in `all` is MOMENT-ACTION. The moment is "trains" (while it trains), "waits" (while its
# agent waits for room to begin an attempt), "ends" (while its agent waits for room to record how an
# attempt ended) or "mourns" (while the guard of its killed agent waits for room). A quota in bytes
# and in files is used up (EDQUOT); a quota does not tell how much is left. tests/cli/t4713 does the
# same with a full disk.
cluster() { "$REEL_SRC"/contrib/slurm-cluster "$@"; }
mkdir -p home/runs
controller=0
trap 'kill -CONT "$controller" 2> /dev/null; cluster down --dir "$dir/c"; rm -rf "$dir"' EXIT
mkdir bin blind; [ ! -e "$REEL_BIN/reel-slurm" ] || ln -s "$REEL_BIN/reel-slurm" bin/
counted() { # PROGRAM NAME: makes bin/NAME, which runs PROGRAM under a simulated quota
    printf '#!/bin/sh\nASAN_OPTIONS=%s LD_PRELOAD=%s exec %s "$@"\n' \
        detect_leaks=0:verify_asan_link_order=0 "$REEL_BIN/tests/lib/quota.so" "$1" > "bin/$2"
    chmod +x "bin/$2"
}
counted "$REEL_BIN/reel" reel; counted "$REEL_BIN/tests/lib/reel-train" reel-train
reel=$dir/bin/reel
export PATH=$dir/bin:$PATH REEL_BIN_DIR=$dir/bin REEL_SLURM_POLL_S=1 ASAN_OPTIONS=detect_leaks=0
export REEL_STUB_STEP_S=0.2 REEL_STUB_HOLD_AT=5
export REEL_QUOTA_DIR=$dir/home/runs
backends_draw
cluster up --dir "$dir/c" --nodes 4 --cpus 8 --gpus 0 --kill-wait 60 > out 2> err; ok $? "a cluster"
eval "$(cluster env --dir "$dir/c")"
printf '#!/bin/sh\n%s "$@" | sed "/COMPLETING/s/\x1fNone\x1f/\x1fOdd\x1f/"\n' \
    "$(command -v squeue)" > blind/squeue
cat > blind/reel-slurm << S
#!/bin/sh
$REEL_BIN/reel-slurm |
    sed -u 's/"COMPLETING", "base": "[A-Z_]*", "reason": "[^"]*"/"COMPLETING", "base": "", \
"reason": "Odd"/g'
S
chmod +x blind/*
fill() { : > home/runs.full; }
unfill() { rm home/runs.full; }
folder() { echo "home/runs/$(cat "home/names/$1")"; }
state_is() { # NAME STATES: one look, for it may change from one to the other: 'paused\|stopping'
    "$reel" status "$1" --json > out 2> err; grep -q "\"state\": \"\($2\)\"" out
}
attempts() { "$reel" status "$1" --json | grep -c '"attempt":'; }
job_is() { squeue -h -n "$1" -o %T | grep -qx "$2"; }
no_job() { ! squeue -h -n "$1" -t PD,R,CG,S | grep -q .; }
said() { grep -qs "$2" "$(folder "$1")/logs/agent.log"; }
pids() { pgrep -f "reel agent --run-dir $dir/home/runs/$(cat "home/names/$1")" | tr '\n' ' '; }
# The agent is the process whose parent is the guard.
agent() {
    for p in $(pids "$1"); do
        case " $(pids "$1") " in *" $(awk '{print $4}' "/proc/$p/stat") "*) echo "$p" ;; esac
    done
}
guard() {
    for p in $(pids "$1"); do
        case " $(pids "$1") " in *" $(awk '{print $4}' "/proc/$p/stat") "*) ;; *) echo "$p" ;; esac
    done
}
trainer() { pgrep -f "reel-train train .*/runs/$(cat "home/names/$1")"; }
model='{"schema": "reel.model/1", "name": "mini", "family": "dit", "layers": 2, "hidden": 64,
 "heads": 2, "kv_heads": 2, "ffn": 128,
 "text_width": 16, "text_len": 4, "adaln": "full", "patch_t": 1, "patch_h": 2, "patch_w": 2,
 "latent_channels": 16}'
declare -A id way launched
i=0
for r in $all; do
    by $((i += 1)); way[$r]=$REEL_SLURM_VIA
    printf \
        '{"schema": "reel.run/1", "name": "%s", "model": %s,
         "stages": [{"data": "synthetic:1x4x4", "gbs": 2, "steps": 1000000}],
 "resources": {"cores_per_rank": 1, "node_agents": false},
 "checkpoint": {"every_steps": "never"}}\n' \
 $r "$model" > $r.json
    case $r in
    *-blind) PATH=$dir/blind:$PATH REEL_SLURM_HELPER=$dir/blind/reel-slurm "$reel" launch $r.json \
    --scheduler slurm -dq > out 2> err < /dev/null ;;
    *) "$reel" launch $r.json --scheduler slurm -dq > out 2> err < /dev/null ;;
    esac
    launched[$r]=$?
done
for r in $all; do
    [ ${launched[$r]} -eq 0 ] && wait_for 90 state_is $r training
    ok $? "$r: launched by ${way[$r]}, and trains"; id[$r]=$(squeue -h -n $r -o %i)
done
fill; ! "$reel" launch $r.json --name late --scheduler slurm -dq > out 2> err < /dev/null &&
    grep -q 'Disk quota exceeded' err; ok $? "the quota is used up"

# Brings each run to its moment.
for r in $all; do
    case $r in
    waits-*) scontrol requeue ${id[$r]} ;;
    ends-*) kill -9 $(trainer $r) ;;
    mourns-*) kill -9 $(agent $r) ;;
    esac
done > out 2> err; ok $? "some are requeued, of others the trainer or the agent is killed"
for r in $all; do
    case $r in
    waits-*) wait_for 120 said $r 'no attempt can be begun yet'; ok $? \
    "$r: its agent waits for room" ;;
    ends-*) wait_for 60 said $r "the attempt's end is not written yet"; ok $? \
    "$r: its agent waits for room to say how the attempt ended" ;;
    mourns-*) wait_for 60 said $r 'of a killed agent is not written yet'; ok $? \
    "$r: its guard waits for room" ;;
    esac
done

if [[ " $all " = *" waits-pause "* ]]; then
    wait_for 60 eval \
        '"$reel" status waits-pause > out 2> err; grep -q "its attempt has not begun.*quota" out'
    ok $? "waits-pause: status says that its job runs and does nothing"
    "$reel" explain waits-pause > out 2> err
    grep -q "^  job ${id[waits-pause]} runs and its attempt has not begun" out
    ok $? "waits-pause: so does explain"
fi

# Does to each run the action that its name gives.
controller=$(cut -d' ' -f1 "$dir/c/run/slurmctld")
silent=; for r in $all; do [[ $r != *-silent ]] || silent="$silent $r"; done
if [ "$silent" ]; then
    kill -STOP "$controller"
    for r in $silent; do kill -TERM $(guard $r); done
    for r in $silent; do
        wait_for 60 said $r "Slurm's controller does not answer"
        ok $? "$r: told to stop while the controller is silent, it asks again"
    done
    kill -CONT "$controller"
fi
for r in $all; do
    export REEL_SLURM_VIA=${way[$r]}
    case $r in
    *-cancel) reel cancel $r > out 2> err; ok $? "$r: cancelled on a full disk" ;;
    *-pause) reel pause $r > out 2> err; ok $? "$r: paused on a full disk" ;;
    *-requeue) scontrol requeue ${id[$r]} > out 2> err; ok $? "$r: requeued while it waits" ;;
    *-scancel | *-blind) scancel ${id[$r]} > out 2> err; ok $? "$r: cancelled at the scheduler" ;;
    esac
    case $r in
    *-pause | *-cancel) grep \
    -q 'has no room for a word' out; ok $? "$r: which says where that is kept" ;;
    esac
done
for r in $all; do
    case $r in *-requeue | *-silent) continue ;; esac
    wait_for 120 no_job $r; ok $? "$r: its job has ended ($(squeue -h -n $r -o '%T %r'))"
done
unfill
for r in $all; do
    export REEL_SLURM_VIA=${way[$r]}
    case $r in
    *-requeue | *-silent)
        wait_for 120 state_is $r training; ok $? "$r: with room it trains again" ;;
    *-pause)
        state_is $r 'paused\|stopping'; ok $? "$r: it is paused"
        reel resume $r -d > out 2> err; ok $? "$r: resumed"
        wait_for 120 state_is $r training; ok $? "$r: trains again" ;;
    *-cancel | *-scancel)
        state_is $r cancelled && no_job $r
        ok $? "$r: cancelled, and nothing came back ($("$reel" status $r))" ;;
    *-blind)
        no_job $r && [ "$(attempts $r)" = 1 ]
        ok $? "$r: nobody says who ended its job, and it did not come back" ;;
    esac
done
for r in $all; do reel cancel $r > out 2> err; done
for r in $all; do wait_for 120 no_job $r || { ok 1 "$r: no job is left"; break; }; done
no_job "${all// /,}"; ok $? "no job is left"
echo "1..$n"
