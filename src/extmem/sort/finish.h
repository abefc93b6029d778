/* Shared by the files of the second pass: finish.c says how it goes. */
#ifndef POISE_SORT_FINISH_H
#define POISE_SORT_FINISH_H

#include "internal.h"

/** A bucket, or a piece of one that needs no sorting. */
struct sort_job {
    const struct sort_bucket *bucket;
    enum { JOB_SORT, JOB_COPY, JOB_FILL } what;
    /* JOB_COPY: these spans of one stream. */
    unsigned lane;
    size_t first_span, span_count;
    uint64_t offset; /* in the output; of unique ones known in their turn */
    uint64_t bytes;
    /* If scratch is in the output: what is read lies there in [low, high), and
     * is in memory by now. */
    uint64_t low, high;
    bool is_read; /* __atomic */
};

struct sort_finish {
    struct sort_run *run;
    struct sort_job *jobs; /* owned */
    size_t job_count, job_room;
    size_t most_spans;
    uint64_t next; /* __atomic */
    bool in_order; /* sizes of the output are known only when sorted */
    uint64_t turn; /* __atomic */
    uint64_t turn_offset, items_out, bytes_out; /* of whose turn it is */
    bool is_full;           /* __atomic: the output takes no more items */
    struct sort_ring *ring; /* NULL: this process writes all */
    struct poise_event turned;
    uint64_t unread; /* __atomic: all jobs before this one were read */
};

/** Where the streams of a bucket lie in a buffer. */
struct sort_segment {
    char *data;
    size_t bytes;
};

/** A job being read into a buffer. */
struct sort_loading {
    const struct sort_job *job;
    size_t number;
    bool is_skipped; /* the output is full */
    char *buffer;
    struct sort_segment *segments;         /* owned, one per lane */
    struct poise_disk_transfer *transfers; /* owned, one per span */
    size_t transfer_count;
};

struct sort_worker {
    struct sort_finish *finish;
    struct sort_run *run;
    char *buffers[4]; /* to read into, sorted, result, being written */
    struct extmem_entry *entries, *spare;
    struct poise_buf keys[2]; /* of lines that are looked at */
    struct sort_loading loadings[2];
    struct extmem_writes writes;
    struct sort_packing packing;
};

/** Make the jobs of all buckets that are written here (finish_jobs.c). */
int sort_finish_jobs(struct sort_finish *finish,
                     const struct sort_buckets *buckets);

/** Scratch is in the output: what lies where an earlier job will write is moved
 * out of its way, and jobs know where theirs lies (finish_way.c). */
int sort_finish_make_way(struct sort_finish *finish);
/** The job was read: others may write where it lay. */
void sort_finish_note_read(struct sort_finish *finish, size_t number);
/** Wait until all that lies where the job writes was read. */
int sort_finish_wait_way(struct sort_finish *finish, size_t number);

/** Wait for the job's turn, if jobs have any: *left is how many items the
 * output still takes then, else UINT64_MAX. */
int sort_finish_wait(struct sort_worker *worker,
                     const struct sort_loading *loading, uint64_t *left);
/** Where the job's result goes, of which the size is known now; its turn is
 * over. */
uint64_t sort_finish_pass(struct sort_worker *worker,
                          const struct sort_loading *loading, size_t len,
                          uint64_t items);

/** Sort what was read and begin to write it: numbers; records or lines; items
 * that need no sorting (finish_bucket.c). */
int sort_finish_words(struct sort_worker *worker, struct sort_loading *loading);
int sort_finish_items(struct sort_worker *worker, struct sort_loading *loading);
int sort_finish_copy(struct sort_worker *worker, struct sort_loading *loading);

#endif
