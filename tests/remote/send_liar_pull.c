/* Senders that lie, to one who asked for x/aaaa, or for what is in x: one
 * function for each case. What it may not bring about is for send_peer.c to
 * see. */
#include "send_liar.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LAST = 1 };

/* One entry of each source, each wanted file with its data, and the end. */
static void give(struct liar *liar, unsigned single, uint64_t count,
                 const struct remote_entry *entries, size_t len)
{
    unsigned files = 0;

    liar_begin(liar, single, count);
    liar_batch(liar, LAST, entries, len);
    for (size_t i = 0; i < len; i++) {
        if (S_ISDIR(entries[i].meta.mode)) {
            liar_batch(liar, LAST, NULL, 0);
        }
        files += S_ISREG(entries[i].meta.mode) && !entries[i].same_len;
    }
    liar_list_end(liar);
    liar_hear(liar, &liar->wants, 1);
    while (files-- > 0 && !liar->done) {
        liar_file(liar, "evil");
    }
    liar_hear(liar, NULL, 0);
}

static void give_file(struct liar *liar, unsigned single, const char *name)
{
    struct remote_entry entry = liar_entry(name, S_IFREG | 0644);

    give(liar, single, 1, &entry, 1);
}

static void play_right(void *arg)
{
    give_file(arg, 1, "aaaa");
}

static void play_other_name(void *arg)
{
    give_file(arg, 1, "bbbb");
}

static void play_other_name_many(void *arg)
{
    struct remote_entry entry = liar_entry("bbbb", S_IFDIR | 0755);

    give(arg, 0, 1, &entry, 1);
}

static void play_more(void *arg)
{
    struct remote_entry entries[] = {liar_entry("aaaa", S_IFREG | 0644),
                                     liar_entry("bbbb", S_IFREG | 0644)};

    give(arg, 0, 1, entries, 2);
}

static void play_twice(void *arg)
{
    struct remote_entry entries[] = {liar_entry("aaaa", S_IFLNK | 0777),
                                     liar_entry("aaaa", S_IFREG | 0644)};

    entries[0].target = "/etc";
    entries[0].target_len = 4;
    give(arg, 0, 2, entries, 2);
}

static void play_order(void *arg)
{
    struct remote_entry entries[] = {liar_entry("cccc", S_IFREG | 0644),
                                     liar_entry("aaaa", S_IFREG | 0644)};

    give(arg, 0, 2, entries, 2);
}

static void play_count(void *arg)
{
    struct remote_entry entry = liar_entry("aaaa", S_IFDIR | 0755);

    give(arg, 0, 5, &entry, 1);
}

static void play_nameless(void *arg)
{
    struct remote_entry entry = liar_entry("", S_IFDIR | 0755);

    give(arg, 0, 1, &entry, 1);
}

static void play_named(void *arg)
{
    struct remote_entry entry = liar_entry("x", S_IFDIR | 0755);

    give(arg, 0, 1, &entry, 1);
}

static void play_single_dir(void *arg)
{
    struct remote_entry entry = liar_entry("aaaa", S_IFDIR | 0755);

    give(arg, 1, 1, &entry, 1);
}

static void play_many_file(void *arg)
{
    give_file(arg, 0, "aaaa");
}

static void play_single_slash(void *arg)
{
    give_file(arg, 1, "aaaa");
}

/* A directory with these entries, all at once, and then the end. */
static void give_in(struct liar *liar, const struct remote_entry *entries,
                    size_t count, size_t below)
{
    struct remote_entry dir = liar_entry("aaaa", S_IFDIR | 0755);

    liar_begin(liar, 0, 1);
    liar_batch(liar, LAST, &dir, 1);
    liar_batch(liar, LAST, entries, count);
    while (below-- > 0) {
        liar_batch(liar, LAST, NULL, 0);
    }
    liar_list_end(liar);
    liar_hear(liar, NULL, 0);
}

static void give_name(struct liar *liar, const char *name)
{
    struct remote_entry entry = liar_entry(name, S_IFDIR | 0755);

    give_in(liar, &entry, 1, 1);
}

static void play_dots(void *arg)
{
    give_name(arg, "..");
}

static void play_absolute(void *arg)
{
    give_name(arg, "/tmp/x");
}

static void play_slash(void *arg)
{
    give_name(arg, "x/../../y");
}

static void play_empty_below(void *arg)
{
    give_name(arg, "");
}

static void play_again(void *arg)
{
    struct remote_entry entries[] = {liar_entry("way", S_IFLNK | 0777),
                                     liar_entry("way", S_IFDIR | 0755)};

    entries[0].target = "../../beside";
    entries[0].target_len = strlen(entries[0].target);
    give_in(arg, entries, 2, 1);
}

static void give_link(struct liar *liar, const char *to)
{
    struct remote_entry entry = liar_entry("link", S_IFREG | 0644);

    entry.same = to;
    entry.same_len = strlen(to);
    give_in(liar, &entry, 1, 0);
}

static void play_link_out(void *arg)
{
    give_link(arg, "../beside/secret");
}

static void play_link_private(void *arg)
{
    give_link(arg, "private/secret");
}

static void play_link_through(void *arg)
{
    give_link(arg, "way/secret");
}

static void play_deeds(void *arg)
{
    struct liar *liar = arg;

    liar_begin(liar, 1, 1);
    liar_say(liar, REMOTE_ACTION, "\004\004home", 6);
    liar_hear(liar, NULL, 0);
}

static void play_long_name(void *arg)
{
    struct liar *liar = arg;
    struct poise_buf body = {0};

    liar_begin(liar, 0, 1);
    poise_buf_varint(&body, 1);
    poise_buf_varint(&body, 1);
    poise_buf_putc(&body, 1);
    poise_buf_varint(&body, UINT64_C(1) << 63);
    poise_buf_puts(&body, "aaaa");
    remote_channel_send_list(&liar->channel, REMOTE_BATCH, &body);
    poise_buf_free(&body);
    liar_hear(liar, NULL, 0);
}

static void play_long_message(void *arg)
{
    struct liar *liar = arg;

    liar_begin(liar, 0, 1);
    poise_buf_varint(&liar->channel.control, UINT64_C(1) << 63);
    liar_hear(liar, NULL, 0);
}

static void play_many_entries(void *arg)
{
    struct liar *liar = arg;
    struct poise_buf body = {0};

    liar_begin(liar, 0, 1);
    poise_buf_varint(&body, 1);
    poise_buf_varint(&body, UINT64_C(1) << 63);
    remote_channel_send_list(&liar->channel, REMOTE_BATCH, &body);
    poise_buf_free(&body);
    liar_hear(liar, NULL, 0);
}

/* The file begins, and this is in it. */
static void give_hole(struct liar *liar, uint64_t len)
{
    struct remote_entry entry = liar_entry("aaaa", S_IFREG | 0644);
    struct poise_buf body = {0};

    liar_begin(liar, 1, 1);
    liar_batch(liar, LAST, &entry, 1);
    liar_list_end(liar);
    liar_hear(liar, &liar->wants, 1);
    liar_say(liar, REMOTE_FILE, NULL, 0);
    remote_channel_send_data(&liar->channel, "data", 4);
    remote_channel_end_data(&liar->channel);
    poise_buf_varint(&body, len);
    remote_channel_send(&liar->channel, REMOTE_HOLE, &body);
    poise_buf_free(&body);
    liar_hear(liar, NULL, 0);
}

static void play_hole(void *arg)
{
    give_hole(arg, UINT64_C(1) << 63);
}

static void play_hole_none(void *arg)
{
    give_hole(arg, 0);
}

static void play_hole_fits(void *arg)
{
    struct liar *liar = arg;
    struct poise_buf body = {0};
    uint64_t len = INT64_MAX - 4, hash = remote_hash(0, "data", 4);
    struct remote_entry entry = liar_entry("aaaa", S_IFREG | 0644);

    liar_begin(liar, 1, 1);
    liar_batch(liar, LAST, &entry, 1);
    liar_list_end(liar);
    liar_hear(liar, &liar->wants, 1);
    liar_say(liar, REMOTE_FILE, NULL, 0);
    remote_channel_send_data(&liar->channel, "data", 4);
    remote_channel_end_data(&liar->channel);
    poise_buf_varint(&body, len);
    remote_channel_send(&liar->channel, REMOTE_HOLE, &body);
    poise_buf_reset(&body);
    poise_buf_varint(&body, REMOTE_FILE_IS);
    poise_buf_varint(&body, INT64_MAX);
    poise_buf_u64(&body, remote_hash(hash, &len, sizeof len));
    remote_channel_send(&liar->channel, REMOTE_FILE_END, &body);
    poise_buf_free(&body);
    liar_hear(liar, NULL, 0);
}

static void play_type(void *arg)
{
    struct liar *liar = arg;
    struct remote_entry entry = liar_entry("aaaa", S_IFDIR | 0755);

    liar_begin(liar, 0, 1);
    liar_batch(liar, LAST, &entry, 1);
    liar_batch(liar, LAST, NULL, 0);
    liar_list_end(liar);
    liar_file(liar, "data for a directory");
    liar_hear(liar, NULL, 0);
}

static void play_replay(void *arg)
{
    struct liar *liar = arg;
    struct remote_entry entry = liar_entry("aaaa", S_IFREG | 0644);

    liar_begin(liar, 1, 1);
    liar_batch(liar, LAST, &entry, 1);
    liar_hear(liar, &liar->wants, 1);
    liar_file(liar, "once");
    liar_file(liar, "twice");
    liar_list_end(liar);
    liar_hear(liar, NULL, 0);
}

static void play_begin_again(void *arg)
{
    struct liar *liar = arg;

    liar_begin(liar, 1, 1);
    liar_begin(liar, 1, 1);
    liar_hear(liar, NULL, 0);
}

static void play_want(void *arg)
{
    struct liar *liar = arg;

    liar_begin(liar, 1, 1);
    liar_say(liar, REMOTE_WANT, "\0", 1);
    liar_hear(liar, NULL, 0);
}

/* The way to the file becomes a link while the file is asked for. */
static void play_race(void *arg)
{
    struct liar *liar = arg;
    struct remote_entry top = liar_entry("aaaa", S_IFDIR | 0755);
    struct remote_entry dir = liar_entry("way", S_IFDIR | 0755);
    struct remote_entry file = liar_entry("secret", S_IFREG | 0644);
    char way[512], beside[512];

    liar_path(liar, "target/aaaa/way", way);
    liar_path(liar, "beside", beside);
    liar_begin(liar, 0, 1);
    liar_batch(liar, LAST, &top, 1);
    liar_batch(liar, LAST, &dir, 1);
    liar_batch(liar, LAST, &file, 1);
    liar_hear(liar, &liar->wants, 3);
    if (rmdir(way) != 0 || symlink(beside, way) != 0) {
        fprintf(stderr, "no race: %s\n", strerror(errno));
        exit(9);
    }
    liar_file(liar, "evil");
    liar_list_end(liar);
    liar_hear(liar, NULL, 0);
}

/* Silence at each state. */
static void play_silent(void *arg)
{
    liar_be_silent(arg);
}

static void play_silent_begun(void *arg)
{
    liar_begin(arg, 1, 1);
    liar_be_silent(arg);
}

static void play_silent_file(void *arg)
{
    struct liar *liar = arg;
    struct remote_entry entry = liar_entry("aaaa", S_IFREG | 0644);

    liar_begin(liar, 1, 1);
    liar_batch(liar, LAST, &entry, 1);
    liar_hear(liar, &liar->wants, 1);
    liar_say(liar, REMOTE_FILE, NULL, 0);
    remote_channel_send_data(&liar->channel, "data", 4);
    remote_channel_drain(&liar->channel);
    liar_be_silent(liar);
}

#define ASKED                                                                  \
    {                                                                          \
        "host:/x/aaaa"                                                         \
    }
#define INSIDE                                                                 \
    {                                                                          \
        "host:/x/"                                                             \
    }

const struct liar_case liar_pulls[] = {
    {"right", play_right, ASKED, 0, NULL, "aaaa"},
    {"other_name", play_other_name, ASKED, -EBADMSG, "bbbb", NULL},
    {"other_dir", play_other_name_many, ASKED, -EBADMSG, "bbbb", NULL},
    {"more", play_more, ASKED, -EBADMSG, "", "aaaa"},
    {"twice",
     play_twice,
     {"host:/x/aaaa", "host:/x/b"},
     -EBADMSG,
     "aaaa",
     "aaaa"},
    {"order",
     play_order,
     {"host:/x/aaaa", "host:/x/cccc"},
     -EBADMSG,
     "aaaa",
     "cccc"},
    {"count", play_count, ASKED, -EBADMSG, "sources", NULL},
    {"nameless", play_nameless, ASKED, -EBADMSG, "asked", NULL},
    {"named", play_named, INSIDE, -EBADMSG, "x", NULL},
    {"single_dir", play_single_dir, ASKED, -EBADMSG, "aaaa", NULL},
    {"many_file", play_many_file, ASKED, -EBADMSG, "aaaa", NULL},
    {"single_slash", play_single_slash, INSIDE, -EBADMSG, "beginning", NULL},
    {"dots", play_dots, ASKED, -EBADMSG, "cannot be", "aaaa"},
    {"absolute", play_absolute, ASKED, -EBADMSG, "cannot be", "aaaa"},
    {"slash", play_slash, ASKED, -EBADMSG, "cannot be", "aaaa"},
    {"empty_below", play_empty_below, ASKED, -EBADMSG, "without a name",
     "aaaa"},
    {"again", play_again, ASKED, -EBADMSG, "way", "aaaa"},
    {"link_out", play_link_out, ASKED, -EBADMSG, "cannot be", "aaaa"},
    {"link_private", play_link_private, ASKED, -EBADMSG, "private/secret",
     "aaaa"},
    {"link_inside", play_link_through, INSIDE, -EBADMSG, "", NULL},
    {"deeds", play_deeds, ASKED, -EBADMSG, "unknown kind", NULL},
    {"long_name", play_long_name, ASKED, -EBADMSG, "", NULL},
    {"long_message", play_long_message, ASKED, -EBADMSG, "length", NULL},
    {"many_entries", play_many_entries, ASKED, -EBADMSG, "too long", NULL},
    {"hole", play_hole, ASKED, -EBADMSG, "hole", NULL},
    {"hole_none", play_hole_none, ASKED, -EBADMSG, "hole", NULL},
    {"hole_fits", play_hole_fits, ASKED, 0, "aaaa", NULL},
    {"type", play_type, ASKED, -EBADMSG, "not asked for", "aaaa"},
    {"replay", play_replay, ASKED, -EBADMSG, "not asked for", "aaaa"},
    {"begin_again", play_begin_again, ASKED, -EBADMSG, "beginning", NULL},
    {"want", play_want, ASKED, -EBADMSG, "unknown kind", NULL},
    {"race", play_race, ASKED, 0, "aaaa/way", "aaaa"},
    {"silent", play_silent, ASKED, -ETIMEDOUT, "nothing comes", NULL},
    {"silent_begun", play_silent_begun, ASKED, -ETIMEDOUT, "nothing comes",
     NULL},
    {"silent_file", play_silent_file, ASKED, -ETIMEDOUT, "nothing comes", NULL},
    {0},
};
