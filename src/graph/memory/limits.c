/* How much memory there is to be had, and refusing what needs more. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

bool graph_small_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t len = read(fd, text, size - 1);
    close(fd);
    text[len > 0 ? len : 0] = '\0';
    return len > 0;
}

/* The number behind `key` in `text`, or UINT64_MAX. */
static uint64_t limits_value(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    if (!at) {
        return UINT64_MAX;
    }
    char *end;
    at += strlen(key);
    uint64_t value = strtoull(at, &end, 10);
    return end > at ? value : UINT64_MAX;
}

static uint64_t limits_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What a control group (version 2) leaves: its limit without what it uses;
 * pages of files count as used, but would be given back. */
static uint64_t limits_group(const char *group)
{
    char path[512], text[4096];
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
    if (!graph_small_file(path, text, sizeof text)) {
        return UINT64_MAX;
    }
    uint64_t most = limits_value(text, "");
    if (most == UINT64_MAX) {
        return UINT64_MAX; /* "max" */
    }
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", group);
    uint64_t used =
        graph_small_file(path, text, sizeof text) ? limits_value(text, "") : 0;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.stat", group);
    if (graph_small_file(path, text, sizeof text)) {
        static const char *const files[] = {"\ninactive_file ",
                                            "\nactive_file "};
        for (int i = 0; i < 2; i++) {
            uint64_t bytes = limits_value(text, files[i]);
            used -= bytes <= used ? bytes : 0;
        }
    }
    return most > used ? most - used : 0;
}

/* The least that the process's group and those above it leave. */
static uint64_t limits_groups(void)
{
    char text[4096];
    if (!graph_small_file("/proc/self/cgroup", text, sizeof text)) {
        return UINT64_MAX;
    }
    char *group = strstr(text, "0::/");
    if (!group) {
        return UINT64_MAX;
    }
    group += 3;
    group[strcspn(group, "\n")] = '\0';
    uint64_t left = UINT64_MAX;
    for (;;) {
        char *slash = strrchr(group, '/');
        left = limits_least(left, limits_group(group[1] ? group : ""));
        if (!slash || group[1] == '\0') {
            return left;
        }
        slash[slash == group] = '\0';
    }
}

/* What the limit of the address space leaves. */
static uint64_t limits_address_space(void)
{
    struct rlimit limit;
    char text[256];
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        !graph_small_file("/proc/self/statm", text, sizeof text)) {
        return UINT64_MAX;
    }
    uint64_t used = limits_value(text, "") * (uint64_t)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t graph_memory_left(void)
{
    char text[4096];
    uint64_t left = UINT64_MAX;
    if (graph_small_file("/proc/meminfo", text, sizeof text)) {
        uint64_t kib = limits_value(text, "MemAvailable:");
        left = kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
    }
    return limits_least(left,
                        limits_least(limits_groups(), limits_address_space()));
}

int graph_memory_check(const char *doing, const char *what, uint64_t count,
                       const char *items, uint64_t each, uint64_t limit)
{
    const char *whose = "the limit";
    uint64_t bytes;
    if (limit == 0) {
        limit = graph_memory_left();
        whose = "available";
    }
    if (!__builtin_mul_overflow(count, each, &bytes) && bytes <= limit) {
        return 0;
    }
    struct poise_buf need = {0}, have = {0}, number = {0};
    poise_human_count(&number, count);
    poise_human_bytes(&need, count > UINT64_MAX / each ? UINT64_MAX : bytes);
    poise_human_bytes(&have, limit);
    poise_error_set(ENOMEM, doing, what,
                    "%s %s of %llu bytes are %s%s of memory; %s is %s",
                    poise_buf_str(&number), items, (unsigned long long)each,
                    count > UINT64_MAX / each ? "more than " : "",
                    poise_buf_str(&need), poise_buf_str(&have), whose);
    poise_buf_free(&need);
    poise_buf_free(&have);
    poise_buf_free(&number);
    return -ENOMEM;
}
