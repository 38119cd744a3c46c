# Wraps trainers without a scheduler. Source this after tests/lib.sh. It writes a trainer to ./train.
wrap() { "$reel" wrap "$@" > out 2> err; }
state_is() { [ "$(state "$1")" = "$2" ]; }
state() { "$reel" status "$1" 2> /dev/null | awk 'NR == 1 {print $3}'; }
cause_of() { # RUN ATTEMPT
    "$reel" status "$1" --json | awk -v a="$2" '
        /"attempt":/ { n = $2 + 0 }
        /"cause":/ && n == a { gsub(/[",]/, "", $2); print $2 }'
}
cat > train << 'S'
#!/bin/bash
# This script behaves like a typical trainer: it loads its newest checkpoint, prints steps, and saves and
# exits on a signal.
from=$(cat ckpt 2> /dev/null || echo 0); echo "loaded $from; run $REEL_RUN_ID attempt $REEL_ATTEMPT"
trap 'echo "saving $i"; echo $i > ckpt; exit ${STOP_CODE:-0}' ${HEARS:-TERM}
for ((i = from; i < ${STEPS:-20}; i++)); do
    echo "iteration $((i + 1))/${STEPS:-20} | loss 0.5"
    [ "$i" = "${CRASH_AT:-}" ] && exit 7
    sleep 0.05
done
echo $i > ckpt
S
chmod +x train
