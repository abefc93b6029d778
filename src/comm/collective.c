/*
 * Collectives over messages: up a binomial tree to a root, combining on the
 * way, and down again. Ranks are numbered from the root on; number v receives
 * from v+1, v+2, v+4, ... as long as the bit is not set in v, then sends to v
 * minus its lowest bit. A message is identified by its sender and the sequence
 * number of the collective, so that messages of several collectives may be
 * under way at once, in any order.
 *
 * A rank that fails goes on sending: its message carries its error code in
 * place of data, so that no rank waits for ever, and every rank behind it in
 * the tree returns that code too. A failure on the way up thus reaches all. On
 * the way down some have left already, with success; so nothing is allocated
 * there that need not be, and a rank short of memory waits and tries again
 * before it fails.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum letter_op { OP_UP = 1, OP_DOWN = 2 };

/* Kinds of collectives, to notice when ranks are out of step. */
enum collective { BARRIER = 0x10, BROADCAST, GATHER, REDUCE, AGREE };

/* One collective as one rank goes through it. */
struct pass {
    struct poise_world *world;
    const char *doing;
    enum collective kind;
    uint64_t sequence;
    int root;
    int code; /* 0, or why this rank or one behind it failed */
};

static struct pass begin(struct poise_world *world, enum collective kind,
                         int root, const char *doing)
{
    return (struct pass){.world = world,
                         .doing = doing,
                         .kind = kind,
                         .sequence = ++world->sequence,
                         .root = root};
}

static int number_of(const struct pass *pass, int rank)
{
    int size = pass->world->size;
    return (rank - pass->root + size) % size;
}

static int rank_of(const struct pass *pass, int number)
{
    return (number + pass->root) % pass->world->size;
}

bool comm_try_again(int code, unsigned *tries)
{
    if (code != -ENOMEM || (*tries)++ == 100) {
        return false;
    }
    poise_sleep_ns(UINT64_C(1000000));
    return true;
}

/* ---- messages ----------------------------------------------------------- */

static int post(struct pass *pass, int dest, enum letter_op op,
                const struct poise_buf *buf)
{
    struct comm_stamp stamp = {.sequence = pass->sequence,
                               .op = (uint32_t)pass->kind << 8 | op,
                               .code = pass->code};
    return comm_post(pass->world, dest, COMM_TAG_COLLECTIVE, buf->data,
                     pass->code ? 0 : buf->len, &stamp, sizeof stamp);
}

static void send_letter(struct pass *pass, int dest, enum letter_op op,
                        const struct poise_buf *buf)
{
    unsigned tries = 0;
    int code;
    do {
        code = post(pass, dest, op, buf);
        if (code < 0 && op == OP_UP) {
            pass->code = code;
        }
    } while (code < 0 && comm_try_again(code, &tries));
    if (code < 0) {
        pass->code = code;
    }
}

/* The message of this pass from `source`, or NULL. Those of passes that are
 * over (this rank failed before it could take them) are thrown away. */
static struct comm_letter *find_letter(struct pass *pass, int source)
{
    struct poise_world *world = pass->world;
    for (size_t i = 0; i < world->inbox_count; i++) {
        struct comm_letter *letter = &world->inbox[i];
        if (letter->sequence < pass->sequence) {
            free(letter->message.data);
            *letter = world->inbox[--world->inbox_count];
            i--;
        } else if (letter->sequence == pass->sequence &&
                   letter->message.source == source) {
            return letter;
        }
    }
    return NULL;
}

/* Wait for the message of this pass from `source`; it leaves the inbox. */
static int await_letter(struct pass *pass, int source, enum letter_op op,
                        struct comm_letter *out)
{
    unsigned tries = 0;
    struct poise_world *world = pass->world;
    struct comm_transport *transport = world->transport;
    for (;;) {
        uint32_t seen = poise_event_seen(&transport->event);
        int got = comm_take_in(world);
        if (got < 0) {
            if (op == OP_DOWN && comm_try_again(got, &tries)) {
                continue;
            }
            return got;
        }
        uint64_t left = UINT64_MAX;
        struct comm_letter *letter = find_letter(pass, source);
        if (letter) {
            left = comm_time_left(letter->due_ns);
            if (left == 0) {
                *out = *letter;
                *letter = world->inbox[--world->inbox_count];
                return 0;
            }
        }
        if (got == 0) {
            transport->ops->wait(transport, seen, left);
        }
    }
}

/* Take the message from `source`; 0 with `out` to be freed, or negative. */
static int take_letter(struct pass *pass, int source, enum letter_op op,
                       struct poise_message *out)
{
    struct comm_letter letter;
    int code = await_letter(pass, source, op, &letter);
    if (code < 0) {
        return code;
    }
    if (letter.op != ((uint32_t)pass->kind << 8 | op)) {
        code = poise_error_set(EPROTO, pass->doing, NULL,
                               "rank %d takes part in another collective call",
                               source);
    } else if (letter.code != 0) {
        code = poise_error_set(-letter.code, pass->doing, NULL,
                               "rank %d failed: %s", source,
                               strerror(-letter.code));
    } else {
        *out = letter.message;
        return 0;
    }
    free(letter.message.data);
    return code;
}

static void fail(struct pass *pass, int code)
{
    if (pass->code == 0) {
        pass->code = code;
    }
}

/* ---- up and down -------------------------------------------------------- */

/* Merge what a subtree sent into `mine`. */
typedef int (*fold_fn)(const void *arg, struct poise_buf *mine,
                       const struct poise_message *theirs);

/* The bytes of all ranks to the root, combined in the order of numbers. */
static void pass_up(struct pass *pass, struct poise_buf *buf, fold_fn fold,
                    const void *arg)
{
    int size = pass->world->size;
    int number = number_of(pass, pass->world->rank);
    for (int bit = 1; bit < size; bit <<= 1) {
        if (number & bit) {
            send_letter(pass, rank_of(pass, number - bit), OP_UP, buf);
            return;
        }
        if (number + bit >= size) {
            continue;
        }
        struct poise_message message;
        int code =
            take_letter(pass, rank_of(pass, number + bit), OP_UP, &message);
        if (code == 0) {
            code = pass->code ? 0 : fold(arg, buf, &message);
            poise_message_free(&message);
        }
        if (code < 0) {
            fail(pass, code);
        }
    }
}

/* The root's bytes to all ranks. */
static void pass_down(struct pass *pass, struct poise_buf *buf)
{
    int size = pass->world->size;
    int number = number_of(pass, pass->world->rank);
    int bit = 1;
    while (bit < size && !(number & bit)) {
        bit <<= 1;
    }
    if (number != 0) {
        struct poise_message message;
        int code =
            take_letter(pass, rank_of(pass, number - bit), OP_DOWN, &message);
        if (code == 0) {
            poise_buf_free(buf);
            buf->data = message.data;
            buf->len = buf->cap = message.len;
        }
        if (code < 0) {
            fail(pass, code);
        }
    }
    while ((bit >>= 1) > 0) {
        if (number + bit < size) {
            send_letter(pass, rank_of(pass, number + bit), OP_DOWN, buf);
        }
    }
}

/* ---- the public ones ---------------------------------------------------- */

static int check_root(const struct poise_world *world, int root,
                      const char *doing)
{
    if (root < 0 || root >= world->size) {
        return poise_error_set(EINVAL, doing, NULL, "there is no rank %d",
                               root);
    }
    return 0;
}

static int fold_nothing(const void *arg, struct poise_buf *mine,
                        const struct poise_message *theirs)
{
    (void)arg;
    (void)mine;
    (void)theirs;
    return 0;
}

int poise_world_barrier(struct poise_world *world)
{
    struct pass pass = begin(world, BARRIER, 0, "meet at a barrier");
    struct poise_buf empty = {0};
    pass_up(&pass, &empty, fold_nothing, NULL);
    pass_down(&pass, &empty);
    poise_buf_free(&empty);
    return pass.code;
}

int poise_world_broadcast(struct poise_world *world, int root,
                          struct poise_buf *buf)
{
    const char *doing = "broadcast";
    int code = check_root(world, root, doing);
    if (code < 0) {
        return code;
    }
    struct pass pass = begin(world, BROADCAST, root, doing);
    if (world->rank == root) {
        fail(&pass, buf->error);
    }
    pass_down(&pass, buf);
    return pass.code;
}

static int fold_append(const void *arg, struct poise_buf *mine,
                       const struct poise_message *theirs)
{
    (void)arg;
    return poise_buf_append(mine, theirs->data, theirs->len);
}

/* Blobs in the order of numbers to blobs in the order of ranks. */
static int rotate(const struct poise_buf *blobs, int size, int root,
                  struct poise_buf *out)
{
    struct poise_reader reader = poise_reader_of(blobs->data, blobs->len);
    size_t len;
    for (int number = 0; number < size - root; number++) {
        poise_reader_blob(&reader, &len);
    }
    if (reader.error) {
        return reader.error;
    }
    size_t behind = poise_reader_left(&reader);
    poise_buf_reset(out);
    poise_buf_append(out, reader.pos, behind);
    return poise_buf_append(out, blobs->data, blobs->len - behind);
}

int poise_world_gather(struct poise_world *world, int root, const void *data,
                       size_t len, struct poise_buf *out)
{
    const char *doing = "gather";
    int code = check_root(world, root, doing);
    if (code < 0) {
        return code;
    }
    struct pass pass = begin(world, GATHER, root, doing);
    struct poise_buf blobs = {0};
    fail(&pass, poise_buf_blob(&blobs, data, len));
    pass_up(&pass, &blobs, fold_append, NULL);
    if (pass.code == 0 && world->rank == root) {
        fail(&pass, rotate(&blobs, world->size, root, out));
    } else if (pass.code == 0) {
        poise_buf_reset(out);
    }
    poise_buf_free(&blobs);
    return pass.code;
}

static void combine(enum poise_reduce op, uint64_t *mine, uint64_t theirs)
{
    switch (op) {
    case POISE_SUM:
        *mine += theirs;
        break;
    case POISE_MIN:
        *mine = theirs < *mine ? theirs : *mine;
        break;
    case POISE_MAX:
        *mine = theirs > *mine ? theirs : *mine;
        break;
    }
}

static int fold_reduce(const void *arg, struct poise_buf *mine,
                       const struct poise_message *theirs)
{
    const enum poise_reduce *op = arg;
    if (theirs->len != mine->len) {
        return poise_error_set(EPROTO, "reduce", NULL,
                               "rank %d has another number of values",
                               theirs->source);
    }
    for (size_t at = 0; at < mine->len; at += sizeof(uint64_t)) {
        uint64_t a, b;
        memcpy(&a, mine->data + at, sizeof a);
        memcpy(&b, (char *)theirs->data + at, sizeof b);
        combine(*op, &a, b);
        memcpy(mine->data + at, &a, sizeof a);
    }
    return 0;
}

int poise_world_reduce(struct poise_world *world, enum poise_reduce op,
                       uint64_t *values, size_t count)
{
    struct pass pass = begin(world, REDUCE, 0, "reduce");
    struct poise_buf buf = {0};
    size_t len = count * sizeof *values;
    fail(&pass, poise_buf_append(&buf, values, len));
    pass_up(&pass, &buf, fold_reduce, &op);
    pass_down(&pass, &buf);
    if (pass.code == 0 && buf.len != len) {
        fail(&pass, poise_error_set(EPROTO, "reduce", NULL,
                                    "rank 0 has another number of values"));
    }
    if (pass.code == 0 && len > 0) {
        memcpy(values, buf.data, len);
    }
    poise_buf_free(&buf);
    return pass.code;
}

/* The failure of the lowest rank: mine, else the first that was received. */
static int fold_agree(const void *arg, struct poise_buf *mine,
                      const struct poise_message *theirs)
{
    (void)arg;
    if (mine->len > 0) {
        return 0;
    }
    return poise_buf_append(mine, theirs->data, theirs->len);
}

/* My error as it travels. A code for which no error is recorded travels with
 * its own text. */
static int pack_error(struct poise_buf *buf, int code)
{
    const struct poise_error *last = poise_error_last();
    bool known = last->code == -code;
    const char *doing = known ? last->doing : "agree on a result";
    const char *what = known ? last->what : "";
    const char *why = known ? last->why : strerror(-code);
    poise_buf_u64(buf, (uint64_t)-code);
    poise_buf_blob(buf, doing, strlen(doing) + 1);
    poise_buf_blob(buf, what, strlen(what) + 1);
    return poise_buf_blob(buf, why, strlen(why) + 1);
}

static int unpack_error(const struct poise_buf *buf)
{
    struct poise_reader reader = poise_reader_of(buf->data, buf->len);
    size_t len;
    int code = (int)poise_reader_u64(&reader);
    const char *doing = poise_reader_blob(&reader, &len);
    const char *what = poise_reader_blob(&reader, &len);
    const char *why = poise_reader_blob(&reader, &len);
    if (reader.error) {
        return reader.error;
    }
    return poise_error_set(code, doing, what, "%s", why);
}

int poise_world_agree(struct poise_world *world, int code)
{
    struct pass pass = begin(world, AGREE, 0, "agree on a result");
    struct poise_buf buf = {0};
    if (code < 0) {
        fail(&pass, pack_error(&buf, code));
    }
    pass_up(&pass, &buf, fold_agree, NULL);
    pass_down(&pass, &buf);
    if (pass.code == 0 && buf.len > 0) {
        fail(&pass, unpack_error(&buf));
    }
    poise_buf_free(&buf);
    return pass.code;
}
