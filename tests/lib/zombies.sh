# Starts several attempts on one folder, and stops some of them by SIGSTOP. Source this after tests/lib.sh.
train=$REEL_BIN/reel-train
finish() { kill -9 $(jobs -p) 2> /dev/null; rm -rf "$dir"; }
trap finish EXIT
small_model
cat > run.json << 'JSON'
{"schema": "reel.run/1", "name": "r", "model": "nano.json",
 "stages": [{"data": "synthetic:1x4x4", "gbs": 2, "steps": 12}],
 "checkpoint": {"every_steps": 1, "keep": 2}}
JSON
# attempt FOLDER ATTEMPT: trains in the folder as this attempt
attempt() {
    exec "$train" train --run run.json --run-dir "$1" --attempt "$2" > "out.$1.$2" 2> "err.$1.$2"
}
# zombie FOLDER NAME [ATTEMPT]: trains in the folder as this attempt (1), which stops itself before its
# first rename to a path that contains NAME
zombie() {
    export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0
    export LD_PRELOAD=$REEL_BIN/tests/lib/stop.so REEL_STOP_AT=$2
    attempt "$1" "${3:-1}"
}
stands() { [ "$(awk '{ print $3 }' "/proc/$1/stat")" = T ]; }
owned() { compgen -G "$1/owner/*.$2.*" > /dev/null; } # FOLDER PID: tells whether this process holds the lease owner
