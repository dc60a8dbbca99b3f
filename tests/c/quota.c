/* Control group folders as on Linux, in a temporary folder. */
#include "quota.h"

#if !defined(__linux__)

bool quotas_are_read(void) { return true; }

#else

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "base/cpu.h"
#include "base/platform/platform.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool write_file(const char *root, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *end = path + strlen(root) + 1; (end = strchr(end, '/')); *end++ = '/') {
        *end = '\0';
        mkdir(path, 0700);
    }
    FILE *const file = fopen(path, "w");
    return file && fputs(text, file) >= 0 && fclose(file) == 0;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place) {
    (void)status, (void)type, (void)place;
    return remove(path);
}

/* Up to three files, the list of groups, and the expected number of processors. */
typedef struct {
    const char *files[3][2];
    const char *groups;
    int processors;
} quota_case;

static const quota_case CASES[] = {
    {{{"a/b/cpu.max", "max 100000\n"}}, "0::/a/b\n", 0},
    {{{"a/b/cpu.max", "150000 100000\n"}}, "0::/a/b\n", 2},
    {{{"a/b/cpu.max", "400000 100000\n"}, {"a/cpu.max", "100000 100000\n"}}, "0::/a/b\n", 1}, /* the parent group's */
    {{{"cpu.max", "50000 100000\n"}}, "0::/not/here\n", 1}, /* a container's own mount */
    {{{"cpu.max", "50000 100000\n"}}, "0::/\n", 1},
    {{{"cpu/c/cpu.cfs_quota_us", "300000\n"}, {"cpu/c/cpu.cfs_period_us", "100000\n"}}, "4:cpuacct,cpu:/c\n0::/\n", 3},
    {{{"cpu/c/cpu.cfs_quota_us", "-1\n"}, {"cpu/c/cpu.cfs_period_us", "100000\n"}}, "4:cpu:/c\n", 0},
    {{{"cpu/c/cpu.cfs_quota_us", "300000\n"}, {"cpu/c/cpu.cfs_period_us", "0\n"}}, "4:cpu:/c\n", 0},
    {{{"cpu/c/cpu.cfs_quota_us", "300000\n"}}, "4:cpu:/c\n", 0},
    {{{"cpu/c/cpu.cfs_quota_us", "1\n"}, {"cpu/c/cpu.cfs_period_us", "9\n"}}, "4:cpuset:/c\nno list\n", 0},
    {{{"cpu.max", "\n"}}, "0::/\n", 0},
    {{{"cpu.max", "9223372036854775807 1\n"}}, "0::/\n", HC_MAX_THREADS},
};

bool quotas_are_read(void) {
    bool right = hc_quota_processors("/does/not/exist", "/does/not/exist") == 0;
    for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
        char root[] = "/tmp/quotaXXXXXX", groups[64];
        if (!mkdtemp(root))
            return false;
        for (int i = 0; i < 3 && CASES[c].files[i][0]; i++)
            right &= write_file(root, CASES[c].files[i][0], CASES[c].files[i][1]);
        right &= write_file(root, "groups", CASES[c].groups);
        snprintf(groups, sizeof groups, "%s/groups", root);
        const int found = hc_quota_processors(groups, root);
        if (found != CASES[c].processors)
            printf("case %zu: %d processors, expected %d\n", c, found, CASES[c].processors);
        right &= found == CASES[c].processors;
        nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    return right;
}

#endif
