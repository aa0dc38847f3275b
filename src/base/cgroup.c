/* The quota of a control group: see cgroup.h. */
#include "base/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first line of FOLDER/NAME without its end; false when there is none. */
static bool read_first_line(const char *folder, const char *name, char *line, int size) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return false;
    FILE *file = fopen(path, "re");
    bool has = file && fgets(line, size, file);
    if (file)
        fclose(file);
    if (has)
        line[strcspn(line, "\n")] = '\0';
    return has;
}

/* CPUs of a quota in each period; 0: "max", -1 or what is no number. */
static double cpus_of(const char *quota, const char *period) {
    char *end_quota, *end_period;
    double q = strtod(quota, &end_quota), p = strtod(period, &end_period);
    bool read = end_quota > quota && end_period > period;
    return read && q > 0 && p > 0 ? q / p : 0;
}

static double quota_v2(const char *folder) {
    char line[128];
    if (!read_first_line(folder, "cpu.max", line, sizeof line))
        return 0;
    const char *space = strchr(line, ' ');
    return cpus_of(line, space ? space + 1 : "100000"); /* the kernel's period */
}

static double quota_v1(const char *folder) {
    char quota[64], period[64];
    if (!read_first_line(folder, "cpu.cfs_quota_us", quota, sizeof quota) ||
        !read_first_line(folder, "cpu.cfs_period_us", period, sizeof period))
        return 0;
    return cpus_of(quota, period);
}

static double smaller(double a, double b) {
    return a > 0 && (b <= 0 || a < b) ? a : b;
}

/* The smallest quota of the group `path` below `mount` and of those around it. Where a container
 * sees its own group as the mount's root, the path that the kernel tells may not be there: then the
 * root alone counts. */
static double smallest(const char *mount, const char *path, double (*quota)(const char *)) {
    char folder[PATH_MAX];
    int n = snprintf(folder, sizeof folder, "%s%s", mount, path);
    size_t n_mount = strlen(mount);
    double found = 0;
    if (n >= (int)sizeof folder)
        return quota(mount);
    for (;;) {
        found = smaller(quota(folder), found);
        char *slash = strrchr(folder + n_mount, '/');
        if (!slash)
            return found;
        *slash = '\0';
    }
}

/* Whether "a,b,c" has the word. */
static bool has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    for (;; words++) {
        size_t length = strcspn(words, ",");
        if (length == n && strncmp(words, word, n) == 0)
            return true;
        words += length;
        if (!*words)
            return false;
    }
}

/* Of a line "ID:CONTROLLERS:PATH"; version 2 has no controllers, and beside version 1 its group is
 * in unified/. */
static double quota_of_line(const char *root, char *line) {
    char mount[PATH_MAX];
    char *controllers = strchr(line, ':'),
         *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return 0;
    controllers++;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    if (!*controllers) {
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
        double found = smallest(mount, path, quota_v2);
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/unified", root);
        return smaller(smallest(mount, path, quota_v2), found);
    }
    if (!has_word(controllers, "cpu"))
        return 0;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, controllers);
    double found = smallest(mount, path, quota_v1);
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/cpu", root);
    return smaller(smallest(mount, path, quota_v1), found);
}

double oct_cgroup_cpus(const char *root) {
    char path[PATH_MAX], line[PATH_MAX + 256];
    double found = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        found = smaller(quota_of_line(root, line), found);
    if (file)
        fclose(file);
    return found;
}
