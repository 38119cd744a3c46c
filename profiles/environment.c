#include "profiles/environment.h"

#include <stddef.h>

const struct opt_note train_environment[] = {
    {"REEL_SIMD",
     "generic, v3 (AVX2) or v4 (AVX-512): the vectors to compute with (default: the widest that "
     "the processors of all ranks have); results differ in their last bits between these",
     "train probe generate"},
    {"REEL_CUDA_LIBRARY",
     "file of the CUDA backend (default: libreel-cuda.so beside the program)", "train generate"},
    {"REEL_GEMM_TABLE",
     "file that names cuBLASLt's algorithm, or our own kernel, for each product on a GPU (default: "
     "none; our kernel computes products of up to 16 rows, and the library's first proposal "
     "others); a run keeps the one that it began with, as gemm.table in its folder",
     "train generate"},
    {"REEL_GEMM_PRODUCTS",
     "file to which each product that cuBLASLt can compute on a GPU is added as it is met, for a "
     "search of algorithms (tests/gpu/visit tune)", "train generate"},
    {"REEL_ATTN",
     "plain: attention on a GPU by our own kernels alone, which are slow; 2: by the second engine "
     "that cuDNN proposes, and so on (default: by the first, wherever it has one); a run keeps to "
     "what it began with, as attn.engine in its folder",
     "train generate"},
    {"REEL_CUPTI_DIR",
     "where activity-RANK.json is written of a CUDA program, ours or another, that runs with "
     "libreel-cupti.so in LD_PRELOAD or CUDA_INJECTION64_PATH (default: its own folder)", "train"},
    {"REEL_CUPTI_AFTER, REEL_CUPTI_FOR",
     "seconds after which that begins to record, and for so many (default: all of its life)",
     "train"},
    {"REEL_CUPTI_WHILE",
     "a file: that records while it is there"},
    {"REEL_CUPTI_FLOPS, REEL_CUPTI_PEAK",
     "FLOPs of a step on one GPU, and that one's FLOP/s, for an MFU there; what is computed "
     "again is not known, and no HFU is told", "train"},
    {"OMPI_ALLOW_RUN_AS_ROOT, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
     "both 1: Open MPI's mpirun starts ranks of root, as in containers", "train probe generate"},
    {NULL, NULL, NULL},
};
