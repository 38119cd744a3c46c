/* host_device: HOST_DEVICE stands before inline functions that CUDA kernels call, too. */
#ifndef BASE_HOST_DEVICE_H
#define BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

#endif
