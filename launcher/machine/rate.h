/* rate: reads from Linux's /sys how fast a NIC's ports are, because hwloc does not know it. */
#ifndef LAUNCHER_MACHINE_RATE_H
#define LAUNCHER_MACHINE_RATE_H

/* Returns the sum of the rates of a NIC's active ports, in one direction, bytes/s; 0: unknown, or
 * none is active. sys: "/sys"; name: "mlx5_0" of /sys/class/infiniband, or "eth0" of
 * /sys/class/net. */
double rate_of_nic(const char *sys, const char *name);

#endif
