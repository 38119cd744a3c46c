# reel-train on several ranks by mpirun: sourced behind tests/lib.sh.
train=$REEL_BIN/reel-train
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS=detect_leaks=0 # Open MPI keeps memory to its end
mpi() { # RANKS COMMAND…
    local ranks=$1; shift
    timeout -k 2 "${SECONDS_MOST:-1500}" mpirun --oversubscribe --mca btl self,vader \
        --mca btl_vader_single_copy_mechanism none --quiet -n "$ranks" "$@" > out 2> err
}
# covering NAME N: each combination of two settings' values, in a layout of up to eight ranks, on the
# device that REEL_DEVICE or PLANE names: state in f64 to 1e-11 of one rank's on the CPU, behind one
# step. An Nth of these layouts, another one each day; with LAYOUTS=covering all, several steps, and
# gradients too.
covering() {
    local part=:$2 steps=1 tried="a part of the covering set of layouts"
    [ "$2" -ne 1 ] || tried="the covering set of layouts"
    [ "${LAYOUTS:-}" != covering ] || { part= steps= tried="the covering set of layouts"; }
    LAYOUTS=pairs$part STEPS=$steps CMOCKA_MESSAGE_OUTPUT=TAP TMPDIR=$dir GLIBC_TUNABLES=${HEAP_KEPT:-} \
        SECONDS_MOST=6000 mpi 8 "$REEL_BIN/tests/test_trainer_layouts"
    rc=$?
    [ $rc -eq 0 ] && grep -q '^ok' out && ! grep -q '^not ok' out
    ok $? "$tried, $1"
    grep '^# .* layouts$' out
}
