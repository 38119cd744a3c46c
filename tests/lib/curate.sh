# reel-curate, and what its scripts ask: sourced behind tests/lib.sh.
curate=$REEL_BIN/reel-curate
refuses() { # NAME CODE PATTERN: that code, that sentence, no dataset
    local rc=$?
    [ $rc -eq "$2" ] && grep -q -- "${*:3}" err && [ ! -e ds ]
    ok $? "$1"
}
value() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" "$2"; }
opts=(--size 64x96 --frames 17 --shard-bytes 200K)
