# For tests that change a kernel: builds the shim's library again, with changed copies of some
# sources in src/trainer/cuda of the scratch folder and the existing objects of all others.
shim=$REEL_BIN/obj/shim cases=$REEL_BIN/tests/test_trainer_cuda_cases
link=$(mpicc --showme:link 2> /dev/null || mpicc -show | cut -d' ' -f2-)
flags=$(sed 's/.* \(-std=c++17\)/\1/; s/-O[0-9s]/-O1/' "$REEL_BIN/flags-shim")
export REEL_CUDA_LIBRARY=$dir/libreel-cuda.so
mkdir -p src/trainer/cuda
# change FILE SED...: copies all kernels and applies the sed commands to this file
change() {
    rm -rf src/trainer/cuda/*
    cp "$REEL_SRC"/trainer/cuda/*.cu* src/trainer/cuda/
    sed -i "${@:2}" "src/trainer/cuda/$1"
}
# library SOURCE...: builds the shim's library with these sources of src/
library() {
    local f without=(! -name '*_none.c.o') # stand-ins for missing libraries
    rm -f libreel-cuda.so
    for f; do
        ${CXX:-g++} -x c++ $flags -Isrc -I"$REEL_SRC" -I"$REEL_SRC/tests/shim" -c \
            -o "$f.o" "src/trainer/cuda/$f" || return
        without+=(! -path "*/cuda/$f.o")
    done
    ${CXX:-g++} $flags -shared -o libreel-cuda.so $(find "$shim/trainer" "$shim/tests" -name '*.o' \
        "${without[@]}") "${@/%/.o}" $link
}
