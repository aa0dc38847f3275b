/* What a container lets a process use: control groups (cgroups) of the kernel. */
#ifndef OCT_BASE_CGROUP_H
#define OCT_BASE_CGROUP_H

/* How many CPUs' time this process may use at once: the smallest quota over period of its control
 * group and of all groups around it; 0: there is no quota, or none can be read. Version 2
 * (cpu.max) and version 1 (cpu.cfs_quota_us and cpu.cfs_period_us of the cpu controller). `root` is
 * what stands before /proc/self/cgroup and /sys/fs/cgroup, "" on a real machine. Reads files,
 * needs no heap. Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and
 * scheduler/sched-bwc.rst. */
double oct_cgroup_cpus(const char *root);

#endif
