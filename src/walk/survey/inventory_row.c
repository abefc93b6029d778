/* How rows are coded in blocks. docs/formats.md, "Inventory". */
#include "internal.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* What a row has in common with the one before. */
enum {
    ROW_SAME_DIR = 1,
    ROW_SAME_DEV = 2,
    ROW_SAME_OWNER = 4,
    ROW_SAME_MODE = 8,
    ROW_ONE_LINK = 16,
    ROW_DIRECTORY = 32,   /* an id follows */
    ROW_FULL_BLOCKS = 64, /* blocks: the size in whole 4096 */
    ROW_CTIME = 128,      /* ctime is mtime */
    ROW_ATIME = 256,      /* atime is not mtime, and follows (version 2) */
    ROW_BITS = 512,
};

void walk_row_fill(struct walk_row *row, const struct statx *st)
{
    row->ino = st->stx_ino;
    row->dev = makedev(st->stx_dev_major, st->stx_dev_minor);
    row->size_bytes = st->stx_size;
    row->blocks = st->stx_blocks;
    row->nlink = st->stx_nlink;
    row->mode = st->stx_mode;
    row->uid = st->stx_uid;
    row->gid = st->stx_gid;
    row->mtime = st->stx_mtime.tv_sec;
    row->mtime_ns = st->stx_mtime.tv_nsec;
    row->ctime = st->stx_ctime.tv_sec;
    row->ctime_ns = st->stx_ctime.tv_nsec;
    row->atime = st->stx_atime.tv_sec;
    row->atime_ns = st->stx_atime.tv_nsec;
}

void walk_row_state_reset(struct walk_row_state *state)
{
    state->row = (struct walk_row){0};
    poise_buf_reset(&state->name);
}

void walk_row_state_free(struct walk_row_state *state)
{
    poise_buf_free(&state->name);
}

static uint64_t zigzag(uint64_t difference)
{
    return difference << 1 ^ -(difference >> 63);
}

static uint64_t unzigzag(uint64_t coded)
{
    return coded >> 1 ^ -(coded & 1);
}

static uint64_t full_blocks(uint64_t size_bytes)
{
    return (size_bytes >> 12) * 8 + (size_bytes & 4095 ? 8 : 0);
}

static unsigned common(const struct walk_row *a, const struct walk_row *b)
{
    unsigned bits = 0;
    bits |= a->dir == b->dir ? ROW_SAME_DIR : 0;
    bits |= a->dev == b->dev ? ROW_SAME_DEV : 0;
    bits |= a->uid == b->uid && a->gid == b->gid ? ROW_SAME_OWNER : 0;
    bits |= a->mode == b->mode ? ROW_SAME_MODE : 0;
    bits |= b->nlink == 1 ? ROW_ONE_LINK : 0;
    bits |= b->id ? ROW_DIRECTORY : 0;
    bits |= b->blocks == full_blocks(b->size_bytes) ? ROW_FULL_BLOCKS : 0;
    bits |= b->mtime == b->ctime && b->mtime_ns == b->ctime_ns ? ROW_CTIME : 0;
    bits |= b->mtime == b->atime && b->mtime_ns == b->atime_ns ? 0 : ROW_ATIME;
    return bits;
}

int walk_row_encode(struct walk_row_state *state, const struct walk_row *row,
                    struct poise_buf *out)
{
    const struct walk_row *old = &state->row;
    unsigned bits = common(old, row);
    size_t shared = 0, most = state->name.len < row->name_len ? state->name.len
                                                              : row->name_len;
    while (shared < most && state->name.data[shared] == row->name[shared]) {
        shared++;
    }
    poise_buf_varint(out, bits);
    poise_buf_varint(out, shared);
    poise_buf_blob(out, shared > 0 ? row->name + shared : row->name,
                   row->name_len - shared);
    if (!(bits & ROW_SAME_DIR)) {
        poise_buf_varint(out, zigzag(row->dir - old->dir));
    }
    if (bits & ROW_DIRECTORY) {
        poise_buf_varint(out, zigzag(row->id - row->dir));
    }
    poise_buf_varint(out, zigzag(row->ino - old->ino));
    if (!(bits & ROW_SAME_DEV)) {
        poise_buf_varint(out, row->dev);
    }
    if (!(bits & ROW_SAME_OWNER)) {
        poise_buf_varint(out, row->uid);
        poise_buf_varint(out, row->gid);
    }
    if (!(bits & ROW_SAME_MODE)) {
        poise_buf_varint(out, row->mode);
    }
    if (!(bits & ROW_ONE_LINK)) {
        poise_buf_varint(out, row->nlink);
    }
    poise_buf_varint(out, row->size_bytes);
    if (!(bits & ROW_FULL_BLOCKS)) {
        poise_buf_varint(out, row->blocks);
    }
    poise_buf_varint(out, zigzag((uint64_t)row->mtime - (uint64_t)old->mtime));
    poise_buf_varint(out, row->mtime_ns);
    if (!(bits & ROW_CTIME)) {
        poise_buf_varint(out,
                         zigzag((uint64_t)row->ctime - (uint64_t)row->mtime));
        poise_buf_varint(out, row->ctime_ns);
    }
    if (bits & ROW_ATIME) {
        poise_buf_varint(out,
                         zigzag((uint64_t)row->atime - (uint64_t)row->mtime));
        poise_buf_varint(out, row->atime_ns);
    }
    poise_buf_reset(&state->name);
    poise_buf_append(&state->name, row->name, row->name_len);
    state->row = *row;
    return out->error ? out->error : state->name.error;
}

/* The name, from what it shares with the one before. */
static int decode_name(struct walk_row_state *state, struct poise_reader *in)
{
    uint64_t shared = poise_reader_varint(in);
    size_t len = 0;
    const char *rest = poise_reader_blob(in, &len);
    if (in->error || shared > state->name.len) {
        return -EBADMSG;
    }
    state->name.len = (size_t)shared;
    return poise_buf_append(&state->name, rest, len);
}

static void decode_fields(struct walk_row *row, unsigned bits,
                          struct poise_reader *in)
{
    if (!(bits & ROW_SAME_DIR)) {
        row->dir += unzigzag(poise_reader_varint(in));
    }
    row->id =
        bits & ROW_DIRECTORY ? row->dir + unzigzag(poise_reader_varint(in)) : 0;
    row->ino += unzigzag(poise_reader_varint(in));
    if (!(bits & ROW_SAME_DEV)) {
        row->dev = poise_reader_varint(in);
    }
    if (!(bits & ROW_SAME_OWNER)) {
        row->uid = (uint32_t)poise_reader_varint(in);
        row->gid = (uint32_t)poise_reader_varint(in);
    }
    if (!(bits & ROW_SAME_MODE)) {
        row->mode = (uint32_t)poise_reader_varint(in);
    }
    row->nlink = bits & ROW_ONE_LINK ? 1 : poise_reader_varint(in);
    row->size_bytes = poise_reader_varint(in);
    row->blocks = bits & ROW_FULL_BLOCKS ? full_blocks(row->size_bytes)
                                         : poise_reader_varint(in);
    row->mtime =
        (int64_t)((uint64_t)row->mtime + unzigzag(poise_reader_varint(in)));
    row->mtime_ns = (uint32_t)poise_reader_varint(in);
    row->ctime = row->atime = row->mtime;
    row->ctime_ns = row->atime_ns = row->mtime_ns;
    if (!(bits & ROW_CTIME)) {
        row->ctime =
            (int64_t)((uint64_t)row->mtime + unzigzag(poise_reader_varint(in)));
        row->ctime_ns = (uint32_t)poise_reader_varint(in);
    }
    if (bits & ROW_ATIME) {
        row->atime =
            (int64_t)((uint64_t)row->mtime + unzigzag(poise_reader_varint(in)));
        row->atime_ns = (uint32_t)poise_reader_varint(in);
    }
}

int walk_row_decode(struct walk_row_state *state, struct poise_reader *in,
                    struct walk_row *row)
{
    uint64_t bits = poise_reader_varint(in);
    int code = bits < ROW_BITS ? decode_name(state, in) : -EBADMSG;
    if (code < 0) {
        return code;
    }
    decode_fields(&state->row, (unsigned)bits, in);
    *row = state->row;
    row->name = state->name.len ? state->name.data : "";
    row->name_len = state->name.len;
    return in->error;
}

/* ---- blocks ------------------------------------------------------------- */

void walk_block_head(char head[WALK_BLOCK_HEAD], const void *payload,
                     size_t len, uint32_t rows)
{
    uint32_t words[2] = {htole32((uint32_t)len), htole32(rows)};
    uint64_t seed = (uint64_t)rows << 32 | len;
    uint64_t hash = htole64(poise_hash_bytes(payload, len, seed));
    memcpy(head, words, sizeof words);
    memcpy(head + sizeof words, &hash, sizeof hash);
}

uint64_t walk_block_chain(uint64_t hash, const char head[WALK_BLOCK_HEAD])
{
    return hash + poise_hash_bytes(head, WALK_BLOCK_HEAD, 0);
}

static int damaged(const struct walk_blocks *blocks)
{
    return poise_error_set(EBADMSG, "read inventory", blocks->path,
                           "damaged or cut short near byte %llu",
                           (unsigned long long)blocks->offset);
}

static int rows_each(struct walk_blocks *blocks, const struct poise_buf *block,
                     uint32_t rows,
                     int (*each)(const struct walk_row *row, void *arg),
                     void *arg)
{
    struct poise_reader in = poise_reader_of(block->data, block->len);
    struct walk_row_state state = {0};
    int code = 0;
    for (uint32_t i = 0; i < rows && code == 0; i++) {
        struct walk_row row;
        code = walk_row_decode(&state, &in, &row);
        if (code == -EBADMSG) {
            code = damaged(blocks);
        }
        code = code < 0 ? code : each(&row, arg);
    }
    if (code == 0 && poise_reader_left(&in)) {
        code = damaged(blocks);
    }
    walk_row_state_free(&state);
    return code;
}

/* Read the payload behind `head` and check it. */
static int read_block(struct walk_blocks *blocks,
                      const char head[WALK_BLOCK_HEAD], struct poise_buf *block,
                      uint32_t *rows)
{
    uint32_t words[2];
    memcpy(words, head, sizeof words);
    size_t len = le32toh(words[0]);
    *rows = le32toh(words[1]);
    if (len > WALK_BLOCK_MOST || len > blocks->end - blocks->offset) {
        return damaged(blocks);
    }
    poise_buf_reset(block);
    if (!poise_buf_reserve(block, len)) {
        return -ENOMEM;
    }
    ssize_t got =
        poise_file_pread(blocks->fd, block->data, len,
                         blocks->offset + WALK_BLOCK_HEAD, blocks->path);
    if (got < 0) {
        return (int)got;
    }
    char again[WALK_BLOCK_HEAD];
    block->len = len;
    if ((size_t)got == len) {
        walk_block_head(again, block->data, len, *rows);
    }
    return (size_t)got == len && memcmp(again, head, sizeof again) == 0
               ? 0
               : damaged(blocks);
}

int walk_blocks_each(struct walk_blocks *blocks,
                     int (*each)(const struct walk_row *row, void *arg),
                     void *arg)
{
    struct poise_buf block = {0};
    int code = 0;
    while (code == 0 && blocks->offset < blocks->end && !blocks->ended) {
        char head[WALK_BLOCK_HEAD];
        uint32_t rows = 0;
        ssize_t got = poise_file_pread(blocks->fd, head, sizeof head,
                                       blocks->offset, blocks->path);
        code = got < 0 ? (int)got
               : got < WALK_BLOCK_HEAD
                   ? damaged(blocks)
                   : read_block(blocks, head, &block, &rows);
        if (code < 0) {
            break;
        }
        blocks->offset += WALK_BLOCK_HEAD + block.len;
        if (rows) {
            blocks->rows += rows;
            blocks->blocks++;
            blocks->hash = walk_block_chain(blocks->hash, head);
            code = rows_each(blocks, &block, rows, each, arg);
            continue;
        }
        struct poise_reader in = poise_reader_of(block.data, block.len);
        blocks->ended = poise_reader_u64(&in) == blocks->rows &&
                        poise_reader_u64(&in) == blocks->blocks &&
                        poise_reader_u64(&in) == blocks->hash && !in.error &&
                        !poise_reader_left(&in);
        code = blocks->ended ? 0 : damaged(blocks);
    }
    poise_buf_free(&block);
    return code;
}
