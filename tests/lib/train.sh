# Runs reel-train on one rank, without a launcher. Source this after tests/lib.sh. `model` is that of
# small_model, unless a script sets another one.
train=$REEL_BIN/reel-train
small_model
model=${model:-nano.json}
options="--model $model --seq 1x4x4 --gbs 2"
run() { "$train" "$@" > out 2> err; }
# refuses NAME CODE PATTERN: checks that the last command exited with CODE, printed one line of error
# that matches PATTERN (apart from the memory plan), and nothing on stdout
refuses() {
    local rc=$?
    [ $rc -eq "$2" ] && grep -q -- "${*:3}" err && [ ! -s out ] &&
        [ "$(grep -vc 'info: ' err)" -eq 1 ]
    ok $? "$1"
}
file() { # RUN MORE [DATA [STEPS]]: writes a run file of 4 steps with the members in MORE
    cat > "$1.json" << JSON
{"schema": "reel.run/1", "name": "r", "model": "$model",
 "stages": [{"data": "${3:-synthetic:1x8x8}", "gbs": 2, "steps": ${4:-4}}],
 "schedule": {"warmup_steps": 0}$2}
JSON
}
plan() { # NAME LAYOUT [GBS [MORE]]
    cat > "$1.json" << JSON
{"schema": "reel.plan/1", "layout": $2, "model": "${model/nano.json/dit-nano}", "seq": {"t": 1, "h": 4, "w": 4},
 "gbs": ${3:-2}, "dtype": "f32", "device": "cpu"${4:-}}
JSON
}
plan plan '{}' 2 ', "peak_flops": 1e11, "peak_source": "made up"'
