/*
 * Sets of records in bounded memory: a hash table, which is written out as a
 * sorted run when it is full, and a merge of all runs at the end. Equal records
 * meet again there, so the table need not know what was spilled before.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_SLOTS = 64, FAN_IN = 32 };

void walk_set_init(struct walk_set *set, unsigned words, unsigned keys,
                   bool sum, size_t limit_bytes, const char *path)
{
    *set = (struct walk_set){.words = words,
                             .keys = keys,
                             .sum = sum,
                             .limit_bytes = limit_bytes,
                             .path = path,
                             .own_file = -1};
}

void walk_set_free(struct walk_set *set)
{
    for (unsigned i = 0; i < set->file_count; i++) {
        if (set->files[i].fd >= 0) {
            close(set->files[i].fd);
        }
        free(set->files[i].path);
    }
    free(set->files);
    free(set->runs);
    free(set->table);
    walk_set_init(set, set->words, set->keys, set->sum, set->limit_bytes,
                  set->path);
}

static uint64_t hash_of(const struct walk_set *set, const uint64_t *record)
{
    uint64_t hash = 0;
    for (unsigned i = 0; i < set->keys; i++) {
        hash =
            poise_hash_u64(hash * UINT64_C(0x9e3779b97f4a7c15) + record[i] + 1);
    }
    return hash;
}

/* Upper bits choose the slot, the lower ones the rank: they must not agree,
 * or a rank's partition would crowd one part of its table. */
static size_t slot_of(uint64_t hash, size_t slots)
{
    return (size_t)((hash >> 32) * slots >> 32);
}

int walk_set_owner(const struct walk_set *set, const uint64_t *record, int size)
{
    return (int)((hash_of(set, record) & UINT32_MAX) * (uint64_t)size >> 32);
}

static uint64_t *record_at(const struct walk_set *set, size_t slot)
{
    return set->table + slot * set->words;
}

/* The record's slot, or the free one where it belongs. */
static uint64_t *find(const struct walk_set *set, const uint64_t *record)
{
    size_t slot = slot_of(hash_of(set, record), set->slots);
    for (;;) {
        uint64_t *here = record_at(set, slot);
        if (!here[set->words - 1] ||
            walk_record_compare(here, record, set->keys) == 0) {
            return here;
        }
        slot = slot + 1 == set->slots ? 0 : slot + 1;
    }
}

static size_t most_slots(const struct walk_set *set)
{
    size_t most = set->limit_bytes / (set->words * sizeof(uint64_t));
    return most > FIRST_SLOTS ? most : FIRST_SLOTS;
}

static int grow(struct walk_set *set)
{
    size_t slots = set->slots ? 2 * set->slots : FIRST_SLOTS;
    if (slots > most_slots(set)) {
        slots = most_slots(set);
    }
    uint64_t *old = set->table;
    size_t old_slots = set->slots;
    uint64_t *table = poise_alloc(slots, set->words * sizeof *table);
    if (!table) {
        return -ENOMEM;
    }
    set->table = table;
    set->slots = slots;
    for (size_t i = 0; i < old_slots; i++) {
        const uint64_t *record = old + i * set->words;
        if (record[set->words - 1]) {
            memcpy(find(set, record), record, set->words * sizeof *record);
        }
    }
    free(old);
    return 0;
}

bool walk_set_full(const struct walk_set *set)
{
    size_t most = most_slots(set);
    return set->slots == most && set->used > most / 8 * 5;
}

int walk_set_add(struct walk_set *set, const uint64_t *record)
{
    if (set->error) {
        return set->error;
    }
    if (set->used >= set->slots / 4 * 3) {
        int code =
            set->slots < most_slots(set) ? grow(set) : walk_set_spill(set);
        if (code < 0) {
            return code;
        }
    }
    unsigned end = set->words - 1;
    uint64_t *here = find(set, record);
    if (!here[end]) {
        memcpy(here, record, set->words * sizeof *record);
        set->used++;
    } else if (set->sum) {
        here[end] += record[end];
    }
    return 0;
}

/* ---- spilling ----------------------------------------------------------- */

static int add_file(struct walk_set *set, int fd, char *path)
{
    struct walk_spill *files =
        poise_realloc(set->files, set->file_count + 1, sizeof *files);
    if (!files) {
        return -ENOMEM;
    }
    set->files = files;
    files[set->file_count] = (struct walk_spill){.fd = fd, .path = path};
    return (int)set->file_count++;
}

/* A name made up by the caller, or a file without one. */
static int open_own(struct walk_set *set)
{
    if (set->own_file >= 0) {
        return 0;
    }
    int fd = set->path
                 ? poise_file_open(AT_FDCWD, set->path,
                                   O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)
                 : poise_file_nameless(NULL, 0);
    if (fd < 0) {
        return fd;
    }
    char *path = set->path ? strdup(set->path) : NULL;
    int index = set->path && !path
                    ? poise_error_set(ENOMEM, "spill records", set->path, NULL)
                    : add_file(set, fd, path);
    if (index < 0) {
        free(path);
        close(fd);
        return index;
    }
    set->own_file = index;
    return 0;
}

static int add_run(struct walk_set *set, struct walk_run run)
{
    if (set->run_count == set->run_cap) {
        size_t cap = set->run_cap ? 2 * set->run_cap : 16;
        struct walk_run *runs = poise_realloc(set->runs, cap, sizeof *runs);
        if (!runs) {
            return -ENOMEM;
        }
        set->runs = runs;
        set->run_cap = cap;
    }
    set->runs[set->run_count++] = run;
    return 0;
}

/* qsort_r would do, but its comparison cannot be inlined and the order of
 * keys is all that matters: one function for each number of keys. */
static int compare_one(const void *a, const void *b)
{
    return walk_record_compare(a, b, 1);
}
static int compare_two(const void *a, const void *b)
{
    return walk_record_compare(a, b, 2);
}

/* Squeeze the table into a sorted array of `used` records. */
static void sort_table(struct walk_set *set)
{
    if (set->sorted || !set->table) {
        set->sorted = true;
        return;
    }
    size_t bytes = set->words * sizeof(uint64_t);
    size_t to = 0;
    for (size_t i = 0; i < set->slots; i++) {
        uint64_t *record = record_at(set, i);
        if (record[set->words - 1]) {
            memmove(record_at(set, to++), record, bytes);
        }
    }
    qsort(set->table, set->used, bytes,
          set->keys == 1 ? compare_one : compare_two);
    set->sorted = true;
}

static int spill(struct walk_set *set)
{
    int code = open_own(set);
    if (code < 0) {
        return code;
    }
    sort_table(set);
    struct walk_run_writer writer;
    struct walk_spill *own = &set->files[set->own_file];
    struct walk_run run = {.file = (unsigned)set->own_file,
                           .offset = own->bytes};
    walk_run_begin(&writer, set, own);
    for (size_t i = 0; i < set->used && code == 0; i++) {
        code = walk_run_put(&writer, record_at(set, i));
    }
    code = walk_run_end(&writer, code, &run.bytes);
    if (code == 0) {
        code = add_run(set, run);
    }
    if (code < 0) {
        return code;
    }
    memset(set->table, 0, set->slots * set->words * sizeof(uint64_t));
    set->used = 0;
    set->sorted = false;
    return 0;
}

int walk_set_spill(struct walk_set *set)
{
    if (set->used && !set->error) {
        set->error = spill(set);
    }
    return set->error;
}

/* ---- merging ------------------------------------------------------------ */

/* A heap of sources, the one with the smallest record in front. */
struct merge {
    struct walk_set *set;
    struct walk_run_reader *readers;
    size_t reader_count;
    size_t next;             /* of the sorted table */
    size_t heap[FAN_IN + 1]; /* reader_count stands for the table */
    size_t heap_count;
};

static const uint64_t *head_of(const struct merge *merge, size_t source)
{
    return source == merge->reader_count ? record_at(merge->set, merge->next)
                                         : merge->readers[source].record;
}

static bool before(const struct merge *merge, size_t a, size_t b)
{
    return walk_record_compare(head_of(merge, merge->heap[a]),
                               head_of(merge, merge->heap[b]),
                               merge->set->keys) < 0;
}

static void sift_down(struct merge *merge, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2; child++) {
            if (child < merge->heap_count && before(merge, child, least)) {
                least = child;
            }
        }
        if (least == at) {
            return;
        }
        size_t keep = merge->heap[at];
        merge->heap[at] = merge->heap[least];
        merge->heap[least] = keep;
        at = least;
    }
}

/* Go on to the front source's next record, or take the source away. */
static int advance(struct merge *merge)
{
    size_t source = merge->heap[0];
    int more;
    if (source == merge->reader_count) {
        more = ++merge->next < merge->set->used;
    } else {
        more = walk_run_next(&merge->readers[source]);
    }
    if (more < 0) {
        return more;
    }
    if (!more) {
        merge->heap[0] = merge->heap[--merge->heap_count];
    }
    sift_down(merge, 0);
    return 0;
}

static int open_readers(struct merge *merge, size_t count, bool with_table)
{
    struct walk_set *set = merge->set;
    merge->readers = poise_alloc(count + 1, sizeof *merge->readers);
    if (!merge->readers) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        int code = walk_run_open(&merge->readers[i], set, &set->runs[i]);
        merge->reader_count = i + 1;
        code = code < 0 ? code : walk_run_next(&merge->readers[i]);
        if (code < 0) {
            return code;
        }
        if (code) {
            merge->heap[merge->heap_count++] = i;
        }
    }
    if (with_table && set->used) {
        merge->heap[merge->heap_count++] = merge->reader_count;
    }
    for (size_t i = merge->heap_count; i-- > 0;) {
        sift_down(merge, i);
    }
    return 0;
}

/* The first `count` runs, and the table if wanted: each record once. */
static int merge_runs(struct walk_set *set, size_t count, bool with_table,
                      int (*each)(const uint64_t *record, void *arg), void *arg)
{
    struct merge merge = {.set = set};
    uint64_t record[WALK_RECORD_WORDS];
    int code = open_readers(&merge, count, with_table);
    while (code == 0 && merge.heap_count) {
        memcpy(record, head_of(&merge, merge.heap[0]),
               set->words * sizeof *record);
        code = advance(&merge);
        while (code == 0 && merge.heap_count) {
            const uint64_t *next = head_of(&merge, merge.heap[0]);
            if (walk_record_compare(next, record, set->keys) != 0) {
                break;
            }
            if (set->sum) {
                record[set->words - 1] += next[set->words - 1];
            }
            code = advance(&merge);
        }
        if (code == 0) {
            code = each(record, arg);
        }
    }
    for (size_t i = 0; i < merge.reader_count; i++) {
        walk_run_close(&merge.readers[i]);
    }
    free(merge.readers);
    return code;
}

static int put_merged(const uint64_t *record, void *arg)
{
    return walk_run_put(arg, record);
}

/* Make one run of the first FAN_IN, at the end of the list. */
static int merge_some(struct walk_set *set)
{
    int code = open_own(set);
    if (code < 0) {
        return code;
    }
    struct walk_run_writer writer;
    struct walk_spill *own = &set->files[set->own_file];
    struct walk_run run = {.file = (unsigned)set->own_file,
                           .offset = own->bytes};
    walk_run_begin(&writer, set, own);
    code = merge_runs(set, FAN_IN, false, put_merged, &writer);
    code = walk_run_end(&writer, code, &run.bytes);
    if (code < 0) {
        return code;
    }
    set->run_count -= FAN_IN;
    memmove(set->runs, set->runs + FAN_IN, set->run_count * sizeof *set->runs);
    return add_run(set, run);
}

int walk_set_each(struct walk_set *set,
                  int (*each)(const uint64_t *record, void *arg), void *arg)
{
    sort_table(set);
    while (set->run_count > FAN_IN) {
        int code = merge_some(set);
        if (code < 0) {
            return code;
        }
    }
    return merge_runs(set, set->run_count, true, each, arg);
}

/* ---- checkpoints -------------------------------------------------------- */

int walk_set_save(const struct walk_set *set, struct poise_buf *out)
{
    if (set->error) {
        return set->error;
    }
    poise_buf_varint(out, set->used);
    for (size_t i = 0; i < (set->sorted ? set->used : set->slots); i++) {
        const uint64_t *record = record_at(set, i);
        for (unsigned j = 0; record[set->words - 1] && j < set->words; j++) {
            poise_buf_varint(out, record[j]);
        }
    }
    poise_buf_varint(out, set->run_count);
    for (size_t i = 0; i < set->run_count; i++) {
        const struct walk_run *run = &set->runs[i];
        const char *path = set->files[run->file].path;
        if (!path) {
            return poise_error_set(EINVAL, "save a checkpoint", "spilled set",
                                   "its file has no name");
        }
        poise_buf_blob(out, path, strlen(path));
        poise_buf_varint(out, run->offset);
        poise_buf_varint(out, run->bytes);
    }
    return out->error;
}

static int load_file(struct walk_set *set, const char *name, size_t len)
{
    for (unsigned i = 0; i < set->file_count; i++) {
        const char *path = set->files[i].path;
        if (path && strlen(path) == len && memcmp(path, name, len) == 0) {
            return (int)i;
        }
    }
    char *path = poise_alloc(len + 1, 1);
    if (!path) {
        return -ENOMEM;
    }
    memcpy(path, name, len);
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    int index = fd < 0 ? fd : add_file(set, fd, path);
    if (index < 0) {
        if (fd >= 0) {
            close(fd);
        }
        free(path);
    }
    return index;
}

static int load_runs(struct walk_set *set, struct poise_reader *in)
{
    uint64_t count = poise_reader_varint(in);
    for (uint64_t i = 0; i < count && !in->error; i++) {
        size_t len = 0;
        const char *name = poise_reader_blob(in, &len);
        struct walk_run run = {0};
        run.offset = poise_reader_varint(in);
        run.bytes = poise_reader_varint(in);
        if (in->error) {
            break;
        }
        int file = load_file(set, name, len);
        if (file < 0) {
            return file;
        }
        run.file = (unsigned)file;
        int code = add_run(set, run);
        if (code < 0) {
            return code;
        }
    }
    return 0;
}

int walk_set_load(struct walk_set *set, struct poise_reader *in)
{
    uint64_t count = poise_reader_varint(in);
    for (uint64_t i = 0; i < count && !in->error; i++) {
        uint64_t record[WALK_RECORD_WORDS];
        for (unsigned j = 0; j < set->words; j++) {
            record[j] = poise_reader_varint(in);
        }
        if (in->error || !record[set->words - 1]) {
            break;
        }
        int code = walk_set_add(set, record);
        if (code < 0) {
            return code;
        }
    }
    int code = load_runs(set, in);
    if (code == 0 && in->error) {
        code = poise_error_set(EBADMSG, "resume", "set of records",
                               "the checkpoint makes no sense");
    }
    return code;
}
