# Kills the step daemons (slurmstepd, the parent of the batch process) of jobs. Source this after
# tests/lib.sh and tests/lib/cluster.sh. The jobs' trainers begin when the file `go` exists.
stand_in
rm bin/reel-train
printf '#!/bin/bash\nuntil [ -e %s/go ]; do sleep 0.1; done\nexec %s/tests/lib/reel-train "$@"\n' \
    "$dir" "$REEL_BIN" > bin/reel-train
printf '#!/bin/bash\nuntil [ -e %s/go ]; do sleep 0.1; done\n%s\n' \
    "$dir" 'for i in $(seq 40); do echo "iteration $i/"; done' > train
chmod +x train bin/reel-train
cluster_up --nodes 1 --cpus 16 --kill-wait 60
held() { [ -e "$(dir_of "$1")/events/rank0.a1.evlog" ]; }
runs() { squeue -h -t R -n "$1" | grep -q .; }
claimed() { [ -s "$(dir_of "$1" 2> /dev/null)/claims/attempt-1" ]; }
guard_of() {
    ps -o ppid= -p "$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$(dir_of "$1")/claims/attempt-1")" |
        tr -d ' '
}
orphan() { # RUN: kills the step daemon that is the parent of its guard; sets $guard
    wait_for 60 claimed "$1" && guard=$(guard_of "$1") && stepd=$(ps -o ppid= -p "$guard") &&
        kill -9 "$stepd" && wait_for 20 eval '[ "$(ps -o ppid= -p "$guard")" -ne "$stepd" ]'
    ok $? "$1: the step daemon of its job is killed"
}
launch() { # NAME STEPS
    printf \
        '{"schema": "reel.run/1", "name": "%s", "model": "dit-tiny",
         "stages": [{"data": "synthetic:1x2x2", "gbs": 64, "steps": %d}],
         "budget": {"crash_without_progress": 1}, "resources": {"cores_per_rank": 1}}\n' \
        "$1" "$2" > "$1.json"
    "$reel" launch "$1.json" --scheduler slurm -dq > out 2> err < /dev/null; ok $? "$1: launched"
}
orphans() { # RUNS: orphans all; the guards of runs in `mute` are stopped, and cannot end jobs
    local r v
    guards=
    for v in $vias; do
        for r; do
            orphan "$r-$v"
            [[ " $mute " != *" $r "* ]] || { kill -STOP "$guard"; guards="$guards $guard"; }
        done
    done
    touch go
}
mute_end() { kill -9 $guards; ok $? "$mute: nobody is left to end their jobs"; }
pause_held() { # NAME: pauses the run once its trainer has begun its log
    wait_for 60 held "$1"; "$reel" pause "$1" > out 2> err; ok $? "$1: pause"
}
removes() { "$reel" rm "$1" > out 2> err; }
all_removed() { # NAMES: tries again, because the scheduler's last answer may still list a job
    local r rc=0
    for r; do
        wait_for 60 no_job "$r" && wait_for 30 removes "$r" && [ ! -e "home/names/$r" ] ||
            { rc=1; break; }
    done
    ok $rc "$*: removed"
}
