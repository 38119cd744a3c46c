/* This header declares the part of NVTX that the trainer uses, for tests without a toolkit: see
 * ../cupti.c. */
#ifndef TESTS_SHIM_NVTX3_NVTOOLSEXT_H
#define TESTS_SHIM_NVTX3_NVTOOLSEXT_H

int nvtxRangePushA(const char *name);
int nvtxRangePop(void);

#endif
