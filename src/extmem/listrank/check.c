/* Whether ranks are those of a file of lists. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct check {
    const uint64_t *ranks;
    uint64_t count;
    struct poise_listrank_report report;
};

/* The ranks, where they are; NULL with the error set. */
static const uint64_t *map_ranks(const char *path, uint64_t count)
{
    struct stat st;
    void *at = NULL;
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY, 0);

    if (fd < 0) {
        return NULL;
    }
    if (fstat(fd, &st) != 0) {
        poise_error_set(errno, "look at", path, NULL);
    } else if ((uint64_t)st.st_size != count * 8) {
        poise_error_set(
            EINVAL, "check", path, "%llu bytes are not the ranks of %llu nodes",
            (unsigned long long)st.st_size, (unsigned long long)count);
    } else {
        at = mmap(NULL, count * 8 + 1, PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED) {
            poise_error_set(errno, "map", path, NULL);
            at = NULL;
        }
    }
    close(fd);
    return at;
}

static void check_some(struct check *check, const uint64_t *successors,
                       const uint64_t *weights, uint64_t first, size_t count)
{
    enum { AHEAD = 32 };
    struct poise_listrank_report *report = &check->report;

    for (size_t i = 0; i < count; i++) {
        uint64_t s = successors[i], node = first + i;
        uint64_t weight = weights ? weights[i] : 1;
        bool right;

        if (i + AHEAD < count && successors[i + AHEAD] < check->count) {
            __builtin_prefetch(&check->ranks[successors[i + AHEAD]]);
        }
        if (rank_is_last(node, s)) {
            report->lists++;
            right = check->ranks[node] == 0;
        } else {
            right = s < check->count &&
                    check->ranks[node] == check->ranks[s] + weight;
        }
        if (!right && report->wrong++ == 0) {
            report->first_wrong = node;
        }
    }
}

static int check_all(struct check *check, const struct rank_job *job)
{
    const uint64_t *successors, *weights;
    struct rank_scan scan;
    char *memory = poise_huge_alloc(rank_scan_bytes(job));
    uint64_t first;
    size_t count;
    int code = 0;

    if (!memory) {
        return -ENOMEM;
    }
    rank_scan_open(&scan, job, 0, job->count, memory);
    while (code == 0 && (code = rank_scan_next(&scan, &first, &successors,
                                               &weights, &count)) > 0) {
        check_some(check, successors, weights, first, count);
        code = 0;
    }
    rank_scan_close(&scan);
    poise_huge_free(memory, rank_scan_bytes(job));
    return code;
}

int poise_listrank_check(const char *in, const char *out,
                         const struct poise_listrank_options *options,
                         struct poise_listrank_report *report)
{
    struct rank_job job;
    struct check check = {0};
    int code = rank_job_open(&job, in, options);

    if (code == 0) {
        check.count = check.report.nodes = job.count;
        check.ranks = map_ranks(out, job.count);
        code =
            check.ranks ? check_all(&check, &job) : -poise_error_last()->code;
    }
    if (check.ranks) {
        munmap((void *)(uintptr_t)check.ranks, job.count * 8 + 1);
    }
    rank_job_close(&job);
    if (code == 0) {
        *report = check.report;
    }
    return code;
}
