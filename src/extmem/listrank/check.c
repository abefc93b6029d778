/* Whether ranks are those of a file of lists. */
#include "internal.h"

#include <errno.h>
#include <sys/mman.h>

struct check {
    const uint64_t *ranks;
    uint64_t count;
    struct poise_listrank_report report;
};

/* The ranks, where they are. */
static int map_ranks(struct check *check, const char *path,
                     const struct poise_listrank_options *options)
{
    const struct extmem_input input = {
        .path = path,
        .item_bytes = 1,
        .folders = options->scratch,
        .folder_count = options->scratch_count,
        .disk = &options->disk,
    };
    struct poise_disk *disk;
    uint64_t bytes;
    void *at;
    int code = extmem_input_open(&input, &disk, &bytes);

    if (code < 0) {
        return code;
    }
    if (bytes != check->count * 8) {
        code = poise_error_set(EBADMSG, "check", path,
                               "%llu bytes are not the ranks of %llu nodes",
                               (unsigned long long)bytes,
                               (unsigned long long)check->count);
    } else {
        at = mmap(NULL, bytes + 1, PROT_READ, MAP_SHARED, poise_disk_fd(disk),
                  0);
        if (at == MAP_FAILED) {
            code = poise_error_set(errno, "map", path, NULL);
        } else {
            check->ranks = at;
        }
    }
    poise_disk_close(disk);
    return code;
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
    int code = rank_job_open(&job, NULL, in, NULL, options);

    if (code == 0) {
        check.count = check.report.nodes = job.count;
        code = map_ranks(&check, out, options);
    }
    if (code == 0) {
        code = check_all(&check, &job);
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
