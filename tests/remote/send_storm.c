/* The other end of poise send, which says things at random: messages of every
 * kind in any order, right ones often enough to get far, with names, lengths
 * and bytes that may do harm. One seed, one storm. */
#include "send_liar.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static const uint64_t numbers[] = {
    0,          1,         2,         3,          255,       4096,
    1 << 20,    INT32_MAX, INT64_MAX, UINT64_MAX, 1ul << 63, (1ul << 63) - 1,
    UINT32_MAX, 1ul << 32, 1ul << 40, 17,
};
static const char *const names[] = {
    "aaaa",
    "b",
    "c",
    "dir",
    "way",
    "link",
    "private",
    "secret",
    "other",
    "zz",
    "..",
    ".",
    "",
    "/etc",
    "../up",
    "a/b",
    ".poise-making-0123456789abcdef",
};
static const char *const paths[] = {
    "aaaa",           "aaaa/b",     "aaaa/c",           "aaaa/dir/b",
    "private/secret", "way/secret", "../beside/secret", "/etc/passwd",
    "aaaa/../x",      "",
};
static const uint32_t kinds[] = {S_IFREG, S_IFREG,  S_IFDIR, S_IFDIR, S_IFLNK,
                                 S_IFIFO, S_IFSOCK, S_IFCHR, 0};
/* Pairs that may be set, that are too many, cut short, or not in order. */
static const char *const xattrs[] = {"\6user.a\1x", "\6user.b\1x\6user.a\1x",
                                     "\6user.a\5x", "\1",
                                     "\x7f",        "\x11security.poise.ab\1x"};

#define PICK(rng, of) (of)[poise_rng_below(rng, sizeof(of) / sizeof *(of))]

static bool rarely(struct poise_rng *rng, uint64_t of)
{
    return poise_rng_below(rng, of) == 0;
}

static uint64_t number(struct poise_rng *rng)
{
    return rarely(rng, 3) ? poise_rng_next(rng) : PICK(rng, numbers);
}

/* Listen for a moment. */
static int listen_to(struct liar *liar, int ms)
{
    struct pollfd poller = {.fd = liar->channel.in, .events = POLLIN};
    int code = remote_channel_flush(&liar->channel);

    poll(&poller, 1, ms);
    return code < 0 ? code : remote_channel_turn(&liar->channel, false);
}

static struct remote_entry entry_of(struct poise_rng *rng, const char *name)
{
    struct remote_entry entry = liar_entry(
        name, PICK(rng, kinds) | (uint32_t)poise_rng_below(rng, 07000));

    if (S_ISLNK(entry.meta.mode)) {
        entry.target = rarely(rng, 2) ? "../../beside" : "/etc";
        entry.target_len = strlen(entry.target);
    }
    if (S_ISREG(entry.meta.mode) && rarely(rng, 4)) {
        entry.meta.size = number(rng);
    }
    if (S_ISREG(entry.meta.mode) && rarely(rng, 3)) {
        entry.same = PICK(rng, paths);
        entry.same_len = strlen(entry.same);
    }
    entry.is_first = !entry.same_len && rarely(rng, 2);
    entry.meta.sparse = rarely(rng, 4);
    if (rarely(rng, 6)) {
        entry.meta.xattrs = PICK(rng, xattrs);
        entry.meta.xattrs_len = strlen(entry.meta.xattrs);
    }
    if (rarely(rng, 8)) {
        entry.digest = (const unsigned char *)"0123456789abcdef";
    }
    return entry;
}

static void say_batch(struct liar *liar, struct poise_rng *rng)
{
    struct remote_entry entries[8];
    size_t count = poise_rng_below(rng, 8), from = 0;

    for (size_t i = 0; i < count; i++) {
        /* In their order, more often than not. */
        from += rarely(rng, 2);
        entries[i] = entry_of(
            rng, rarely(rng, 12)
                     ? PICK(rng, names)
                     : names[(from + i) % (sizeof names / sizeof *names)]);
    }
    liar_batch(liar, rarely(rng, 3) ? (unsigned)number(rng) : 1, entries,
               count);
}

static void say_bytes(struct liar *liar, struct poise_rng *rng)
{
    unsigned char bytes[24];
    size_t len = poise_rng_below(rng, sizeof bytes);

    for (size_t i = 0; i < len; i++) {
        bytes[i] = rarely(rng, 2) ? (unsigned char)poise_rng_below(rng, 3)
                                  : (unsigned char)poise_rng_next(rng);
    }
    liar_say(liar, (unsigned)poise_rng_below(rng, REMOTE_ALIVE + 2), bytes,
             len);
}

static void say_number(struct liar *liar, struct poise_rng *rng, unsigned kind)
{
    struct poise_buf body = {0};

    poise_buf_varint(&body, number(rng));
    poise_buf_varint(&body, number(rng));
    poise_buf_u64(&body, number(rng));
    liar_say(liar, kind, body.data, body.len);
    poise_buf_free(&body);
}

static void say_something(struct liar *liar, struct poise_rng *rng)
{
    switch (poise_rng_below(rng, 11)) {
    case 0:
    case 1:
    case 2:
        say_batch(liar, rng);
        break;
    case 3:
    case 4:
        liar_file(liar, rarely(rng, 2) ? "evil" : "");
        break;
    case 5:
        liar_say(liar, REMOTE_FILE, NULL, 0);
        remote_channel_send_data(&liar->channel, "data", 4);
        break;
    case 6:
        say_number(liar, rng, rarely(rng, 2) ? REMOTE_HOLE : REMOTE_FILE_END);
        break;
    case 7:
        liar_say(liar, REMOTE_WANT, rarely(rng, 2) ? "\1\1" : "\0\0",
                 rarely(rng, 4) ? 2 : 1);
        break;
    case 8:
        liar_list_end(liar);
        break;
    case 9:
        say_number(liar, rng, 1 + (unsigned)poise_rng_below(rng, REMOTE_ALIVE));
        break;
    default:
        say_bytes(liar, rng);
    }
}

void liar_storm(struct liar *liar, uint64_t seed, bool gives)
{
    struct poise_rng rng;
    struct remote_entry top = liar_entry("aaaa", S_IFDIR | 0755);
    int code = 0;

    poise_rng_seed(&rng, seed);
    if (gives && !rarely(&rng, 10)) {
        liar_begin(liar, 0, rarely(&rng, 10) ? number(&rng) : 1);
        liar_batch(liar, 1, &top, 1);
    }
    for (uint64_t n = poise_rng_below(&rng, 30); n > 0 && code == 0; n--) {
        code = listen_to(liar, rarely(&rng, 4) ? 20 : 0);
        say_something(liar, &rng);
        if (rarely(&rng, 40)) {
            poise_buf_varint(&liar->channel.control, number(&rng));
        }
    }
    for (int i = 0; i < 5 && code == 0; i++) {
        code = listen_to(liar, 20);
    }
}

void liar_storm_greeting(uint64_t seed, bool gives, struct poise_buf *out)
{
    static const char *const segmenters[] = {
        "gear",
        "auto",
        "floats,shape=4294967295x4294967295,element=8",
        "fixed,size=1",
        "./x.so",
        "gear,size=4G",
        "x"};
    struct poise_rng rng;
    struct poise_buf body = {0};

    poise_rng_seed(&rng, ~seed);
    poise_buf_varint(&body, (gives ? 0u : 1u) |
                                (poise_rng_below(&rng, 64) << 1 & 126));
    poise_buf_varint(&body, POISE_WALK_KEEP_ALL);
    for (int i = 0; i < 4; i++) {
        poise_buf_varint(&body, rarely(&rng, 4) && i < 3 ? number(&rng) : 0);
    }
    poise_buf_putc(&body, 1);
    if (rarely(&rng, 3)) {
        const char *segmenter = PICK(&rng, segmenters);
        poise_buf_blob(&body, segmenter, strlen(segmenter));
    } else {
        poise_buf_blob(&body, "gear", 4);
    }
    poise_buf_putc(&body, rarely(&rng, 5) ? 1 : 0);
    if (body.data[body.len - 1]) {
        poise_buf_blob(&body, "/tmp/no/cache", rarely(&rng, 2) ? 13 : 0);
    }
    poise_buf_varint(&body, rarely(&rng, 9) ? number(&rng) : 1);
    for (int i = 0; i < 2; i++) {
        const char *path = gives && !rarely(&rng, 5) ? "" : PICK(&rng, paths);
        poise_buf_blob(&body, path, strlen(path));
    }
    if (rarely(&rng, 6)) {
        body.len = poise_rng_below(&rng, body.len);
    }
    poise_buf_append(out, "POISESND", 8);
    poise_buf_u64(out, rarely(&rng, 12)
                           ? number(&rng)
                           : REMOTE_VERSION | (uint64_t)body.len << 32);
    poise_buf_append(out, body.data, body.len);
    poise_buf_free(&body);
}

void liar_flood(struct liar *liar)
{
    enum { DEEP = 240, EACH = 60 };
    struct remote_entry entry = liar_entry("aaaa", S_IFDIR | 0755), links[EACH];
    char way[256] = {0}, (*link_names)[16] = malloc(EACH * sizeof *link_names);
    struct poise_buf path = {0};
    unsigned long number = 0;

    memset(way, 'd', 250);
    liar_begin(liar, 0, 1);
    liar_batch(liar, 1, &entry, 1);
    poise_buf_puts(&path, "aaaa/");
    for (int i = 0; i < DEEP; i++) {
        entry = liar_entry(way, S_IFDIR | 0755);
        liar_batch(liar, 1, &entry, 1);
        poise_buf_printf(&path, "%s/", way);
    }
    entry = liar_entry("a", S_IFREG | 0644);
    entry.is_first = true;
    liar_batch(liar, 0, &entry, 1);
    poise_buf_puts(&path, "a");
    while (link_names && listen_to(liar, 0) == 0) {
        for (int i = 0; i < EACH; i++) {
            snprintf(link_names[i], sizeof *link_names, "b%09lu", number++);
            links[i] = liar_entry(link_names[i], S_IFREG | 0644);
            links[i].same = path.data;
            links[i].same_len = path.len;
        }
        liar_batch(liar, 0, links, EACH);
    }
    poise_buf_free(&path);
    free(link_names);
}
