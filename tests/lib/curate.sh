# Helps the scripts that test reel-curate. Source this after tests/lib.sh.
curate=$REEL_BIN/reel-curate
refuses() { # NAME CODE PATTERN: checks the exit status, the error, and that no dataset was made
    local rc=$?
    [ $rc -eq "$2" ] && grep -q -- "${*:3}" err && [ ! -e ds ]
    ok $? "$1"
}
value() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" "$2"; }
opts=(--size 64x96 --frames 17 --shard-bytes 200K)
