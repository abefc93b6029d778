/*
 * Sorted runs of records: how they are written and read back. A run is blocks,
 * each with a hash of its own; keys are differences to the record before
 * (docs/formats.md). A run that could not be finished is written over.
 */
#include "internal.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_HEAD = 16 };

/* {payload length, records} as 4 bytes each, then a hash of both and of the
 * payload, so that no damage goes unnoticed. */
static void put_head(char *head, size_t len, uint32_t records,
                     const void *payload)
{
    uint32_t words[2] = {htole32((uint32_t)len), htole32(records)};
    memcpy(head, words, sizeof words);
    uint64_t seed = 0;
    memcpy(&seed, words, sizeof words);
    uint64_t hash = htole64(poise_hash_bytes(payload, len, le64toh(seed)));
    memcpy(head + 8, &hash, sizeof hash);
}

void walk_run_begin(struct walk_run_writer *writer, const struct walk_set *set,
                    struct walk_spill *file)
{
    *writer = (struct walk_run_writer){
        .set = set, .file = file, .offset = file->bytes};
}

static int flush_block(struct walk_run_writer *writer)
{
    struct poise_buf *block = &writer->block;
    if (block->error) {
        return block->error;
    }
    if (!writer->records) {
        return 0;
    }
    put_head(block->data, block->len - RUN_HEAD, writer->records,
             block->data + RUN_HEAD);
    const char *name = writer->file->path;
    int code =
        poise_file_pwrite(writer->file->fd, block->data, block->len,
                          writer->file->bytes, name ? name : "temporary file");
    if (code < 0) {
        return code;
    }
    writer->file->bytes += block->len;
    writer->records = 0;
    poise_buf_reset(block);
    return 0;
}

int walk_run_put(struct walk_run_writer *writer, const uint64_t *record)
{
    struct poise_buf *block = &writer->block;
    const struct walk_set *set = writer->set;
    if (block->len > WALK_RUN_BLOCK - 10 * WALK_RECORD_WORDS) {
        int code = flush_block(writer);
        if (code < 0) {
            return code;
        }
    }
    if (!block->len) {
        static const char room[RUN_HEAD];
        poise_buf_append(block, room, sizeof room);
        memset(writer->previous, 0, sizeof writer->previous);
    }
    bool same = true; /* the keys so far */
    for (unsigned i = 0; i < set->words; i++) {
        uint64_t from = i < set->keys && same ? writer->previous[i] : 0;
        poise_buf_varint(block, record[i] - from);
        same = same && record[i] == writer->previous[i];
    }
    memcpy(writer->previous, record, set->words * sizeof *record);
    writer->records++;
    return block->error;
}

int walk_run_end(struct walk_run_writer *writer, int code, uint64_t *bytes)
{
    if (code == 0) {
        code = flush_block(writer);
    }
    if (code < 0) {
        writer->file->bytes = writer->offset; /* to be overwritten */
    } else {
        *bytes = writer->file->bytes - writer->offset;
    }
    poise_buf_free(&writer->block);
    return code;
}

static int damaged(const struct walk_run_reader *reader)
{
    const char *name = reader->file->path;
    return poise_error_set(EBADMSG, "read spilled records",
                           name ? name : "temporary file",
                           "damaged or cut short near byte %llu",
                           (unsigned long long)reader->offset);
}

int walk_run_open(struct walk_run_reader *reader, const struct walk_set *set,
                  const struct walk_run *run)
{
    *reader = (struct walk_run_reader){
        .set = set,
        .file = &set->files[run->file],
        .offset = run->offset,
        .end = run->offset + run->bytes,
    };
    reader->block = poise_alloc(1, RUN_HEAD + WALK_RUN_BLOCK);
    return reader->block ? 0 : -ENOMEM;
}

static int next_block(struct walk_run_reader *reader)
{
    uint64_t left = reader->end - reader->offset;
    size_t want = RUN_HEAD + WALK_RUN_BLOCK;
    if (left < want) {
        want = (size_t)left;
    }
    const char *name = reader->file->path;
    ssize_t got =
        poise_file_pread(reader->file->fd, reader->block, want, reader->offset,
                         name ? name : "temporary file");
    if (got < 0) {
        return (int)got;
    }
    uint32_t words[2];
    if ((size_t)got < RUN_HEAD) {
        return damaged(reader);
    }
    memcpy(words, reader->block, sizeof words);
    size_t len = le32toh(words[0]);
    if (len > (size_t)got - RUN_HEAD) {
        return damaged(reader);
    }
    char head[RUN_HEAD];
    put_head(head, len, le32toh(words[1]), reader->block + RUN_HEAD);
    if (memcmp(head, reader->block, RUN_HEAD) != 0) {
        return damaged(reader);
    }
    reader->in = poise_reader_of(reader->block + RUN_HEAD, len);
    reader->records = le32toh(words[1]);
    reader->offset += RUN_HEAD + len;
    memset(reader->record, 0, sizeof reader->record);
    return 0;
}

int walk_run_next(struct walk_run_reader *reader)
{
    while (!reader->records) {
        if (reader->offset >= reader->end) {
            return 0;
        }
        int code = next_block(reader);
        if (code < 0) {
            return code;
        }
    }
    const struct walk_set *set = reader->set;
    bool same = true;
    for (unsigned i = 0; i < set->words; i++) {
        uint64_t old = reader->record[i];
        uint64_t from = i < set->keys && same ? old : 0;
        reader->record[i] = from + poise_reader_varint(&reader->in);
        same = same && reader->record[i] == old;
    }
    reader->records--;
    return reader->in.error ? damaged(reader) : 1;
}

void walk_run_close(struct walk_run_reader *reader)
{
    free(reader->block);
    reader->block = NULL;
}
