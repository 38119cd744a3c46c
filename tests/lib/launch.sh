# Helps tests of runs on the local scheduler. Source this after tests/lib.sh. bin/ has the stand-in
# trainer of tests/lib. Runs that are not over at the end of the script are cancelled.
export REEL_LOCAL_CORES=2
mkdir bin && ln -s "$REEL_BIN/reel" "$REEL_BIN/tests/lib/reel-train" bin/
stand_in() { export REEL_BIN_DIR=$dir/bin; reel=$dir/bin/reel; } # uses the stand-in from now on
finish() {
    local run
    for run in "$dir"/home/names/*; do
        [ ! -e "$run" ] || "$reel" cancel "${run##*/}"
    done > /dev/null 2>&1
    rm -rf "$dir"
}
trap finish EXIT
run_file() { # NAME STEPS [RESOURCES [FILE]]
    cat > "${4:-$1}.json" << JSON
{"schema": "reel.run/1", "name": "$1", "model": "dit-tiny",
 "stages": [{"data": "synthetic:2x8x8", "gbs": 4, "steps": $2}],
 "resources": {${3:-}}}
JSON
}
state() { "$reel" status "$1" --json 2> /dev/null | sed -n 's/.*"state": "\([a-z]*\)".*/\1/p'; }
state_is() { [ "$(state "$1")" = "$2" ]; }
status_is() { "$reel" status "$1" 2> /dev/null | grep -q " $2 "; }
number() { # RUN KEY: prints the last value of this key in the run's status
    local s
    s=$("$reel" status "$1" --json 2> /dev/null |
            sed -n "s/.*\"$2\": \(-*[0-9]*\).*/\1/p" | tail -1)
    echo "${s:-0}"
}
past() { [ "$(number "$1" steps_done)" -gt "$2" ]; } # RUN STEPS: tells whether more steps are done
causes() { "$reel" status "$1" --json | sed -n 's/.*"cause": "\([a-z_]*\)".*/\1/p' | tr '\n' ' '; }
no_process() { # RUN: tells whether no process of it exists
    [ -z "$(pgrep -f "$dir/home/runs/$(cat "home/names/$1")")" ]
}
