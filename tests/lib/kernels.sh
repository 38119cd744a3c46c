# For tests that change a kernel: the shim's library made anew from a copy of some sources, in
# src/trainer/cuda of the scratch folder, with all else as it was built.
shim=$REEL_BIN/obj/shim cases=$REEL_BIN/tests/test_trainer_cuda_cases
link=$(mpicc --showme:link 2> /dev/null || mpicc -show | cut -d' ' -f2-)
flags=$(sed 's/.* \(-std=c++17\)/\1/; s/-O[0-9s]/-O1/' "$REEL_BIN/flags-shim")
export REEL_CUDA_LIBRARY=$dir/libreel-cuda.so
mkdir -p src/trainer/cuda
# change FILE SED...: takes all kernels as they are, and changes this one
change() {
    rm -rf src/trainer/cuda/*
    cp "$REEL_SRC"/trainer/cuda/*.cu* src/trainer/cuda/
    sed -i "${@:2}" "src/trainer/cuda/$1"
}
# library SOURCE...: builds the shim's library with these sources of src/
library() {
    local f without=(! -name '*_none.c.o') # what stands for a library
    rm -f libreel-cuda.so
    for f; do
        ${CXX:-g++} -x c++ $flags -Isrc -I"$REEL_SRC" -I"$REEL_SRC/tests/shim" -c \
            -o "$f.o" "src/trainer/cuda/$f" || return
        without+=(! -path "*/cuda/$f.o")
    done
    ${CXX:-g++} $flags -shared -o libreel-cuda.so $(find "$shim/trainer" "$shim/tests" -name '*.o' \
        "${without[@]}") "${@/%/.o}" $link
}
