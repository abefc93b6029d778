/*
 * Memory for transfers, how much of it there is, and how much disk.
 */
#include "disk.h"

#include "core/base/fault.h"

#include <poise/core.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define HUGE_BYTES ((size_t)2 << 20)

void *poise_huge_alloc(size_t bytes)
{
    size_t whole = (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    char *base, *start;
    size_t front, huge;

    if (bytes == 0 || whole < bytes || fault_test(POISE_FAULT_ALLOC) != 0) {
        base = MAP_FAILED;
    } else {
        base = mmap(NULL, whole + HUGE_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (base == MAP_FAILED) {
        poise_error_set(ENOMEM, "allocate memory", NULL,
                        "out of memory for %zu bytes", bytes);
        return NULL;
    }
    start = (char *)(((uintptr_t)base + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
    front = (size_t)(start - base);
    if (front > 0) {
        munmap(base, front);
    }
    if (front < HUGE_BYTES) {
        munmap(start + whole, HUGE_BYTES - front);
    }
    /* Small pages do as well, only slower; the last ones have to, else they
     * would take up to 2 MiB more than what was asked for. */
    huge = bytes & ~(HUGE_BYTES - 1);
    if (huge > 0) {
        madvise(start, huge, MADV_HUGEPAGE);
    }
    if (huge < whole) {
        madvise(start + huge, whole - huge, MADV_NOHUGEPAGE);
    }
    return start;
}

void poise_huge_free(void *ptr, size_t bytes)
{
    if (ptr) {
        munmap(ptr, (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
    }
}

/* ---- limits ------------------------------------------------------------- */

/* The whole of a small file, NUL-terminated; false if it cannot be read. */
static bool slurp(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0) {
        return false;
    }
    n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool read_number(const char *folder, const char *name, uint64_t *out)
{
    char path[4096], text[64];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);

    if (n < 0 || (size_t)n >= sizeof path || !slurp(path, text, sizeof text) ||
        text[0] < '0' || text[0] > '9') {
        return false;
    }
    *out = strtoull(text, NULL, 10);
    return true;
}

/* The value of `key` in a file of "KEY VALUE" or "KEY: VALUE kB" lines. */
static uint64_t read_field(const char *path, const char *key)
{
    char text[8192];
    const char *at;
    size_t len = strlen(key);

    if (!slurp(path, text, sizeof text)) {
        return 0;
    }
    for (at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, key, len) == 0 && (at[len] == ' ' || at[len] == ':')) {
            return strtoull(at + len + 1, NULL, 10);
        }
    }
    return 0;
}

/* What a group and all above it leave. Page cache can be given back. */
static uint64_t group_available(const char *top, const char *group,
                                bool version2)
{
    uint64_t least = UINT64_MAX;
    char folder[4096], stat[4200];
    int n = snprintf(folder, sizeof folder, "%s%s", top, group);
    size_t floor = strlen(top);

    if (n < 0 || (size_t)n >= sizeof folder) {
        return least;
    }
    for (;;) {
        uint64_t limit = 0, used = 0, cached, left;
        char *slash;

        if (read_number(folder,
                        version2 ? "memory.max" : "memory.limit_in_bytes",
                        &limit)) {
            read_number(folder,
                        version2 ? "memory.current" : "memory.usage_in_bytes",
                        &used);
            snprintf(stat, sizeof stat, "%s/memory.stat", folder);
            cached = read_field(stat, "inactive_file") +
                     read_field(stat, "active_file");
            used -= cached < used ? cached : used;
            left = limit > used ? limit - used : 0;
            least = left < least ? left : least;
        }
        slash = strrchr(folder, '/');
        if (!slash || strlen(folder) <= floor) {
            return least;
        }
        *slash = '\0';
    }
}

/* One line of /proc/self/cgroup: NUMBER:CONTROLLERS:GROUP. */
static uint64_t line_available(char *line)
{
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!group) {
        return UINT64_MAX;
    }
    *controllers++ = '\0';
    *group++ = '\0';
    if (strcmp(controllers, "memory") == 0) {
        return group_available("/sys/fs/cgroup/memory", group, false);
    }
    if (controllers[0] == '\0') {
        return group_available("/sys/fs/cgroup", group, true);
    }
    return UINT64_MAX;
}

uint64_t poise_memory_available(void)
{
    uint64_t least = read_field("/proc/meminfo", "MemAvailable") * 1024;
    char text[8192], *line, *rest = text;

    if (least == 0) {
        least =
            (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    if (!slurp("/proc/self/cgroup", text, sizeof text)) {
        return least;
    }
    while ((line = strsep(&rest, "\n"))) {
        uint64_t left = line_available(line);

        least = left < least ? left : least;
    }
    return least;
}

int poise_disk_free_bytes(const char *dir, uint64_t *out)
{
    struct statvfs fs;
    int code = fault_test(POISE_FAULT_STAT);

    if (code == 0 && statvfs(dir, &fs) != 0) {
        code = errno;
    }
    if (code != 0) {
        return poise_error_set(code, "see how much is free in", dir, NULL);
    }
    *out = (uint64_t)fs.f_bavail * fs.f_frsize;
    return 0;
}
