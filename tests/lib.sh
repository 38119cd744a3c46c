# What the scripts of tests/cli and tests/slurm share: a scratch folder to be in, TAP lines, refusals, patience.
# Sourced first; REEL_BIN (a variant's build folder) and REEL_SRC are set by tests/run, or point at the release build.
set -u
REEL_SRC=${REEL_SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
export REEL_SRC REEL_BIN=${REEL_BIN:-$REEL_SRC/build/release}
dir=$(mktemp -d "${TMPDIR:-/tmp}/$(basename "$0" | cut -d- -f1).XXXXXX") || exit 4
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 4
export REEL_HOME=$dir/home
reel=$REEL_BIN/reel
n=0
seed_draw() { # what this script draws from RANDOM is drawn again with the SEED that it prints
    RANDOM=${SEED:=$((RANDOM * 32768 + RANDOM))}; echo "# random moments: SEED=$SEED repeats them"
}
small_model() { # writes ./nano.json: a run of it costs a sixteenth of dit-tiny's, for tests that ask what becomes of a run and not what it computes
    cat > nano.json << 'JSON'
{"schema": "reel.model/1", "name": "dit-nano", "family": "dit", "layers": 2, "hidden": 32, "heads": 2, "ffn": 64,
 "text_width": 8, "text_len": 4, "adaln": "full", "patch_t": 1, "patch_h": 2, "patch_w": 2, "latent_channels": 16}
JSON
}
ok() { # RESULT NAME: one TAP line, with what was said last when it is a failure
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; tail -n 8 out err 2> /dev/null | sed 's/^/# /'; fi
}
refuses() { # NAME CODE PATTERN: the last command failed so, in one line on stderr, with nothing on stdout; a busy machine's controller may be waited for
    local rc=$?
    [ $rc -eq "$2" ] && grep -q -- "$3" err && [ ! -s out ] && [ "$(grep -vc "Slurm's controller does not answer: waiting" err)" -eq 1 ]
    ok $? "$1"
}
wait_for() { # SECONDS COMMAND...: until it succeeds; of a machine that has nothing else to do, so three times as many before it is given up
    local end=$((SECONDS + 3 * $1)); shift
    until "$@"; do [ $SECONDS -ge $end ] && return 1; sleep 0.1; done
}
# A test whose parts each ask Slurm by one of the two backends: those of even number by its commands, the others by reel-slurm, and on every
# other day the other way round. DRAW=0 or 1 repeats a day's choice; VIA=commands or helper does all parts by one.
backends_draw() { DRAW=${DRAW:-$((10#$(date +%j) % 2))}; echo "# backends drawn by DRAW=$DRAW VIA=${VIA:-}"; }
by() { # NUMBER-OF-PART
    REEL_SLURM_VIA=${VIA:-$( ((($1 + DRAW) % 2)) && echo helper || echo commands)}
    [ -x "$REEL_BIN/reel-slurm" ] || REEL_SLURM_VIA=commands
    export REEL_SLURM_VIA REEL_SLURM_HELPER=$REEL_BIN/reel-slurm
}
grew() { [ "$(stat -c %s "$1" 2> /dev/null || echo 0)" -gt "$2" ]; } # FILE BYTES
hold_lease() { # PATH: what base/lease.h takes there has this shell as its holder, until release_lease
    mkdir "$1" && : > "$1/$(printf '%032x' 1).$(cat /proc/sys/kernel/random/boot_id).$(stat -L -c %i /proc/self/ns/pid).$$.$(awk '{ print $22 }' /proc/$$/stat).0.here"
}
release_lease() { rm -r "$1"; }
held_trainer() { # FOLDER: programs for REEL_BIN_DIR; their trainer waits in step 20 of a first attempt until it hears a notice (tests/slurm/preload)
    mkdir -p "$1"; for p in reel reel-slurm reel-curate; do [ ! -e "$REEL_BIN/$p" ] || ln -sf "$REEL_BIN/$p" "$1/"; done
    printf '#!/bin/sh\nASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 LD_PRELOAD=%s exec %s "$@"\n' "$REEL_BIN/tests/slurm/hold.so" "$REEL_BIN/reel-train" > "$1/reel-train"
    chmod +x "$1/reel-train"
}
