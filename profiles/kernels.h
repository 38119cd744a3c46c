/* kernels: classifies a GPU's kernels by their names. Its functions are pure.
 *
 * A profiler sees kernels of many libraries (reel, cuBLASLt and CUTLASS, cuDNN, FlashAttention,
 * Triton and PyTorch, Transformer Engine, NCCL), and only their names tell what they compute. A
 * table of patterns gives each name a class; a name that matches no pattern has KERNEL_OTHER, whose
 * share is always shown. Names may be mangled as in C++, or not.
 *
 *     enum kernel_class c = kernel_class_of("nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NTN");
 */
#ifndef PROFILES_KERNELS_H
#define PROFILES_KERNELS_H

/* Each entry gives id, name, and the kernels that are in the class. */
#define KERNEL_CLASS_LIST(X)                                                                   \
    X(GEMM, "gemm", "matrix products and convolutions")                                        \
    X(ATTENTION, "attention", "fused attention, forward and backward")                         \
    X(NORM, "norm", "layer, RMS, group and head norms, with what is fused into them")          \
    X(ELEMENTWISE, "elementwise", "activations, rotations, sums of rows, noise, losses")       \
    X(OPTIMIZER, "optimizer", "updates, their norms and checks")                               \
    X(OTHER, "other", "kernels that no pattern knows")                                         \
    X(COMMUNICATION, "communication", "between GPUs, while nothing is computed beside it")     \
    X(COPY, "copy", "copies, fills and rearranged rows, beside neither of these")
enum kernel_class {
#define KERNEL_CLASS_ENUM(id, name, what) KERNEL_##id,
    KERNEL_CLASS_LIST(KERNEL_CLASS_ENUM)
#undef KERNEL_CLASS_ENUM
    KERNEL_CLASSES,
    KERNEL_COMPUTES = KERNEL_COMMUNICATION /* the classes before it are computation */
};
extern const char *const kernel_class_names[KERNEL_CLASSES];
#define KERNEL_NONE_NAME "idle" /* name of the time in which no class runs */

/* Returns the class of a kernel's name, or of an NVTX range's. A program gives a range the name of
 * the part that queues the kernel: "adamw", "Optimizer.step". */
enum kernel_class kernel_class_of(const char *name);
/* Returns the class of a kernel from its name and its range: in a range of the optimizer every
 * computation counts as optimizer, and an unknown name gets the class of its range. */
enum kernel_class kernel_class_in_range(enum kernel_class by_name, enum kernel_class by_range);
/* Writes the identifier of a kernel without the parts that C++ adds: "gemm" for
 * "_ZL4gemmIfEv6tensor" and for "void gemm<float>(tensor)". Returns out. */
enum { KERNEL_NAME_BYTES = 128 };
const char *kernel_identifier(const char *name, char out[KERNEL_NAME_BYTES]);

#endif
