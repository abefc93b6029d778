/*
 * The way up: from the first bucket to the last, a node's rank is that of the
 * node behind its chain, which was asked for, and the distance.
 */
#include "disk.h"

#include <errno.h>

/* The ranks of what lies behind a bucket's chains. */
static int receive_answers(struct disk_job *d, uint64_t bucket, uint64_t *ends)
{
    struct rank_drain drain;
    const void *messages;
    size_t count;
    int code = rank_drain_open(&drain, &d->answers, bucket, d->reading), closed;

    while (code == 0 &&
           (code = rank_drain_next(&drain, &messages, &count)) > 0) {
        const struct answer *answers = messages;

        for (size_t i = 0; i < count; i++) {
            ends[answers[i].chain] = answers[i].rank;
        }
        code = 0;
    }
    closed = rank_drain_close(&drain);
    return code < 0 ? code : closed;
}

static int rank_nodes(struct disk_job *d, uint64_t bucket, const uint64_t *ends,
                      uint64_t *ranks)
{
    enum { AHEAD = 16 };
    struct rank_drain drain;
    const void *messages;
    size_t count;
    int code = rank_drain_open(&drain, &d->kept, bucket, d->reading), closed;

    while (code == 0 &&
           (code = rank_drain_next(&drain, &messages, &count)) > 0) {
        const struct kept *kept = messages;

        for (size_t i = 0; i < count; i++) {
            for (int j = 0; j < 2; j++) {
                uint32_t chain = kept[i].chain[j];
                uint64_t rank = kept[i].distance[j];

                if (i + AHEAD < count && kept[i + AHEAD].chain[j] != NO_CHAIN) {
                    __builtin_prefetch(&ends[kept[i + AHEAD].chain[j]]);
                }
                rank += chain == NO_CHAIN ? 0 : ends[chain];
                *ranks++ = rank;
                d->greatest = rank > d->greatest ? rank : d->greatest;
            }
        }
        code = 0;
    }
    closed = rank_drain_close(&drain);
    return code < 0 ? code : closed;
}

static int answer_questions(struct disk_job *d, uint64_t bucket,
                            const uint64_t *ranks)
{
    enum { AHEAD = 16 };
    struct rank_drain drain;
    const void *messages;
    size_t count;
    int code = rank_drain_open(&drain, &d->questions, bucket, d->reading),
        closed;

    while (code == 0 &&
           (code = rank_drain_next(&drain, &messages, &count)) > 0) {
        const struct question *questions = messages;

        code = 0;
        for (size_t i = 0; i < count && code == 0; i++) {
            uint64_t all = questions[i].all;
            struct answer answer = {.chain = all >> 16 & 0xffffff,
                                    .rank = ranks[all >> 40]};

            if (i + AHEAD < count) {
                __builtin_prefetch(&ranks[questions[i + AHEAD].all >> 40]);
            }
            code = rank_pipe_put(&d->answers, all & 0xffff, &answer);
        }
    }
    closed = rank_drain_close(&drain);
    return code < 0 ? code : closed;
}

int disk_go_up(struct disk_job *d)
{
    size_t bytes = (size_t)8 << d->bits;
    uint64_t *ends = (uint64_t *)(void *)(d->nodes + 2 * bytes);
    struct extmem_writes writes = {0};
    int code = 0, last;

    for (uint64_t bucket = 0; bucket < d->buckets && code == 0; bucket++) {
        char *ranks = d->nodes + bucket % 2 * bytes;

        rank_note_passed(d->job, bucket_nodes(d, bucket));
        code = receive_answers(d, bucket, ends);
        if (code == 0) {
            code = rank_nodes(d, bucket, ends, (uint64_t *)(void *)ranks);
        }
        if (code == 0) {
            code = extmem_output_put(d->job->out, ranks,
                                     bucket_nodes(d, bucket) * 8,
                                     (bucket << d->bits) * 8, &writes);
        }
        if (code == 0) {
            code = answer_questions(d, bucket,
                                    (const uint64_t *)(const void *)ranks);
        }
    }
    last = extmem_writes_wait(&writes);
    return code < 0 ? code : last;
}
