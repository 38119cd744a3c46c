/* rate: how fast a NIC's ports are, which hwloc does not tell: Linux has it in /sys. */
#ifndef LAUNCHER_MACHINE_RATE_H
#define LAUNCHER_MACHINE_RATE_H

/* Returns what the active ports of a NIC carry together in one direction, bytes/s; 0: unknown, or
 * none is active. sys: "/sys"; name: "mlx5_0" of /sys/class/infiniband, or "eth0" of
 * /sys/class/net. */
double rate_of_nic(const char *sys, const char *name);

#endif
