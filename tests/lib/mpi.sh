# Runs reel-train on several ranks with mpirun. Source this after tests/lib.sh.
train=$REEL_BIN/reel-train
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all its memory
mpi() { # RANKS COMMAND…
    local ranks=$1; shift
    timeout -k 2 "${SECONDS_MOST:-1500}" mpirun --oversubscribe --mca btl self,vader \
        --mca btl_vader_single_copy_mechanism none --quiet -n "$ranks" "$@" > out 2> err
}
# covering NAME N: tests layouts of up to eight ranks in which every combination of the values of two
# settings occurs, on the device that REEL_DEVICE or PLANE names. After one step of the smallest model
# that a layout allows the state in f64 must agree to 1e-11 with that of one rank on the CPU. Each day
# tests another Nth of these layouts; DRAW=K repeats day K. With LAYOUTS=covering all are tested, with
# several steps of larger models, and gradients are compared too.
covering() {
    local part=:$2 steps=1 tried="a part of the covering set of layouts"
    [ "$2" -ne 1 ] || tried="the covering set of layouts"
    [ "${LAYOUTS:-}" != covering ] || { part= steps= tried="the covering set of layouts"; }
    LAYOUTS=pairs$part STEPS=$steps CMOCKA_MESSAGE_OUTPUT=TAP TMPDIR=$dir GLIBC_TUNABLES=${HEAP_KEPT:-} \
        SECONDS_MOST=6000 mpi 8 "$REEL_BIN/tests/test_trainer_layouts"
    rc=$?
    [ $rc -eq 0 ] && grep -q '^ok' out && ! grep -q '^not ok' out
    ok $? "$tried, $1"
    grep '^# .* layouts$\|^# .*DRAW=' out
}
