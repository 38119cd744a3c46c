# The scripts of tests/cli and tests/slurm source this first, and end where that fails: it puts them
# into a scratch folder. It has their functions for TAP lines, refusals and patience. REEL_BIN (the
# build folder of a variant) and REEL_SRC come from tests/run; without it they point at the release
# build.
set -u
REEL_SRC=${REEL_SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
export REEL_SRC REEL_BIN=${REEL_BIN:-$REEL_SRC/build/release}
dir=$(mktemp -d "${TMPDIR:-/tmp}/$(basename "$0" | cut -d- -f1).XXXXXX") || exit 4
trap 'rm -rf "$dir"' EXIT
cd "$dir" && mkfifo .nap || exit 4
export REEL_HOME=$dir/home
reel=$REEL_BIN/reel
# A job that was given back stays until the controller has written that down: no more than a second
# here, since t8146-requeue-forgotten alone kills a controller at that moment.
export REEL_SLURM_SETTLE_S=1
# A rank starts and ends in half of the processor time when Open MPI is told what it would find out:
# that messages go by ob1 (then ranks do not ask each other), that no device of the machine is of
# interest (each rank would read the PCI bus), and that ranks are bound as they shall be. PMIx keeps
# what it knows in memory of its own, not in files that are cleared first. hwloc loads no plugin, since
# those for displays and OpenCL bring the libraries of X. mpi_plain takes that back.
export OMPI_MCA_pml=ob1 OMPI_MCA_orte_bound_at_launch=1 PMIX_MCA_gds=hash
export HWLOC_COMPONENTS=-pci,-linuxio HWLOC_PLUGINS_PATH=/nonexistent
mpi_plain() {
    unset OMPI_MCA_pml OMPI_MCA_orte_bound_at_launch PMIX_MCA_gds HWLOC_COMPONENTS HWLOC_PLUGINS_PATH
}
n=0
seed_draw() { # what this script draws from RANDOM is drawn again with the SEED that it prints
    RANDOM=${SEED:=$((RANDOM * 32768 + RANDOM))}; echo "# random moments: SEED=$SEED repeats them"
}
# Writes ./nano.json: a run of it costs a sixteenth of dit-tiny's, for tests that ask what becomes
# of a run, or whether two are the same, and not how long it takes.
small_model() { # [LAYERS HEADS WIDTH]
    local width=${3:-32}
    cat > nano.json << JSON
{"schema": "reel.model/1", "name": "dit-nano", "family": "dit", "layers": ${1:-2}, "hidden": $width,
 "heads": ${2:-2}, "ffn": $((2 * width)), "text_width": 8, "text_len": 4, "adaln": "full",
 "patch_t": 1, "patch_h": 2, "patch_w": 2, "latent_channels": 16}
JSON
}
# ok RESULT NAME...: prints one TAP line. Behind a failure stands what was said last. The words of a
# long name are joined by blanks.
ok() {
    n=$((n + 1))
    [ "$1" -ne 0 ] || { echo "ok $n - ${*:2}"; return; }
    echo "not ok $n - ${*:2}"
    tail -n 8 out err 2> /dev/null | sed 's/^/# /'
}
# refuses NAME CODE PATTERN...: checks that the last command ended with this code, told why in one
# line on stderr and printed nothing. The words of a long pattern are joined by blanks. Lines that
# say that a busy machine's controller is waited for do not count.
refuses() {
    local rc=$?
    [ $rc -eq "$2" ] && grep -q -- "${*:3}" err && [ ! -s out ] &&
        [ "$(grep -vc "Slurm's controller does not answer: waiting" err)" -eq 1 ]
    ok $? "$1"
}
# has_fields KEY...: checks that the JSON in ./out has all of these, and lists the others.
has_fields() {
    local key
    for key; do grep -q "\"$key\":" out || echo "$key"; done > lacking
    [ ! -s lacking ]
}
# nap SECONDS: sleeps without a process of its own, by reading what nobody writes: each call of sleep
# takes 1.6 ms of the processor, a hundred times a second where six clusters are waited for.
nap() {
    { read -rt "$1" <> "$dir/.nap"; } 2> /dev/null || [ $? -gt 128 ] ||
        sleep "$1" # there is no pipe, but in a folder that is gone
}
# wait_for SECONDS COMMAND...: waits until the command succeeds. The seconds are those of a machine
# that has nothing else to do: three times as many pass before it gives up. What lasts is asked less
# often, for whoever asks takes the processor from those that are waited for.
wait_for() {
    local begun=$SECONDS end=$((SECONDS + 3 * $1)); shift
    until "$@"; do
        [ $SECONDS -ge $end ] && return 1
        case $((SECONDS - begun)) in
        0) nap 0.2 ;;
        1 | 2) nap 0.5 ;;
        *) nap 1 ;;
        esac
    done
}
# Of a list a script may take a part, another one each day. DRAW=K takes that of day K.
day_draw() { DRAW=${DRAW:-$((10#$(date -u +%j)))}; echo "# a part of the list is drawn by DRAW=$DRAW"; }
# A test may ask Slurm by each of the two backends: its parts of even number by Slurm's commands,
# the others by reel-slurm, and on every other day the other way round. DRAW=0 or 1 repeats the
# choice of a day; VIA=commands or helper does all parts by one.
backends_draw() {
    DRAW=${DRAW:-$((10#$(date +%j) % 2))}; echo "# backends drawn by DRAW=$DRAW VIA=${VIA:-}"
}
by() { # NUMBER-OF-PART
    REEL_SLURM_VIA=${VIA:-$( ((($1 + DRAW) % 2)) && echo helper || echo commands)}
    [ -x "$REEL_BIN/reel-slurm" ] || REEL_SLURM_VIA=commands
    export REEL_SLURM_VIA REEL_SLURM_HELPER=$REEL_BIN/reel-slurm
}
# grew FILE BYTES: tells whether the file is longer than that.
grew() { [ "$(stat -c %s "$1" 2> /dev/null || echo 0)" -gt "$2" ]; }
# hold_lease PATH: makes the folder that base/lease.h takes there, with this shell as the holder.
# release_lease takes it away.
hold_lease() {
    local boot namespace began
    boot=$(cat /proc/sys/kernel/random/boot_id)
    namespace=$(stat -L -c %i /proc/self/ns/pid)
    began=$(awk '{ print $22 }' /proc/$$/stat)
    mkdir "$1" && : > "$1/$(printf '%032x' 1).$boot.$namespace.$$.$began.0.here"
}
release_lease() { rm -r "$1"; }
# held_trainer FOLDER [LIBRARY]: fills a folder for REEL_BIN_DIR. Its trainer waits in step 20 of a first
# attempt until it hears a notice, or does what another library of tests/lib/preload says.
held_trainer() {
    local p asan=ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0
    mkdir -p "$1"
    for p in reel reel-slurm reel-curate; do
        [ ! -e "$REEL_BIN/$p" ] || ln -sf "$REEL_BIN/$p" "$1/"
    done
    printf '#!/bin/sh\n%s LD_PRELOAD=%s exec %s "$@"\n' \
        "$asan" "$REEL_BIN/tests/lib/${2:-hold}.so" "$REEL_BIN/reel-train" > "$1/reel-train"
    chmod +x "$1/reel-train"
}
# paced_trainer FOLDER: the same with a trainer that makes 20 steps a second at most, for runs that a
# test looks at for long.
paced_trainer() { held_trainer "$1" pace; }
