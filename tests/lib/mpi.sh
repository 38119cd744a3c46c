# reel-train on several ranks by mpirun: sourced behind tests/lib.sh.
train=$REEL_BIN/reel-train
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS=detect_leaks=0 # Open MPI keeps memory to its end
mpi() { # RANKS COMMAND…
    local ranks=$1; shift
    timeout -k 2 1500 mpirun --oversubscribe --mca btl self,vader \
        --mca btl_vader_single_copy_mechanism none --quiet -n "$ranks" "$@" > out 2> err
}
