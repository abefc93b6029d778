/* Receivers that lie, to one who offers ROOT/source/: one function for each
 * case. What it may not bring about is for send_peer.c to see. */
#include "send_liar.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LAST = 1 };

/* In it, in order: directory "dir" with a file in it, "file", its further
 * link "hard", "link". */
enum { OF_DIR = 1, OF_FILE, OF_HARD, OF_LINK };

/* Wait for so many lists, and answer all but the last with nothing. */
static void answer_to(struct liar *liar, unsigned lists)
{
    for (unsigned i = 1; i < lists; i++) {
        liar_hear(liar, &liar->batches, i);
        liar_say(liar, REMOTE_WANT, "\0", 1);
    }
    liar_hear(liar, &liar->batches, lists);
}

static void want_one(struct liar *liar, unsigned which)
{
    char bytes[2] = {1, (char)(which - 1)};

    answer_to(liar, 2);
    liar_say(liar, REMOTE_WANT, bytes, 2);
    liar_hear(liar, &liar->files, 1);
}

static void play_want_right(void *arg)
{
    struct liar *liar = arg;

    want_one(liar, OF_FILE);
    liar_say(liar, REMOTE_WANT, "\0", 1);
    liar_say(liar, REMOTE_DONE, "\0\0\0\0\0", 5);
    liar_hear(liar, NULL, 0);
}

static void play_want_dir(void *arg)
{
    want_one(arg, OF_DIR);
    liar_hear(arg, NULL, 0);
}

static void play_want_hard(void *arg)
{
    want_one(arg, OF_HARD);
    liar_hear(arg, NULL, 0);
}

static void play_want_link(void *arg)
{
    want_one(arg, OF_LINK);
    liar_hear(arg, NULL, 0);
}

static void play_want_none(void *arg)
{
    want_one(arg, OF_LINK + 1);
    liar_hear(arg, NULL, 0);
}

static void play_want_many(void *arg)
{
    struct liar *liar = arg;

    answer_to(liar, 2);
    liar_say(liar, REMOTE_WANT, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0",
             11);
    liar_hear(liar, NULL, 0);
}

static void play_want_far(void *arg)
{
    struct liar *liar = arg;

    answer_to(liar, 2);
    liar_say(liar, REMOTE_WANT, "\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
             11);
    liar_hear(liar, NULL, 0);
}

static void play_want_flood(void *arg)
{
    struct liar *liar = arg;

    for (int i = 0; i < 100000; i++) {
        liar_say(liar, REMOTE_WANT, "\0", 1);
    }
    liar_hear(liar, NULL, 0);
}

static void play_done_early(void *arg)
{
    struct liar *liar = arg;

    liar_say(liar, REMOTE_DONE, "\0\0\0\0\0", 5);
    liar_hear(liar, NULL, 0);
}

static void play_data(void *arg)
{
    struct liar *liar = arg;

    answer_to(liar, 1);
    remote_channel_send_data(&liar->channel, "data", 4);
    liar_hear(liar, NULL, 0);
}

static void play_deed(void *arg)
{
    struct liar *liar = arg;

    liar_say(liar, REMOTE_ACTION, "\x63\1x", 3);
    liar_hear(liar, NULL, 0);
}

static void play_problem(void *arg)
{
    struct liar *liar = arg;

    /* An errno that is none, and then the end. */
    liar_say(liar, REMOTE_PROBLEM,
             "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\1a\1b\1c", 16);
    liar_say(liar, REMOTE_DONE, "\0\0\0\0\0", 5);
    liar_hear(liar, NULL, 0);
}

static void play_list(void *arg)
{
    struct liar *liar = arg;

    answer_to(liar, 2);
    liar_batch(liar, LAST, NULL, 0);
    liar_hear(liar, NULL, 0);
}

/* What was offered becomes a link to what was not. */
static void race(struct liar *liar, const char *what, const char *to)
{
    char path[512], old[520];

    liar_path(liar, what, path);
    snprintf(old, sizeof old, "%s-old", path);
    if (rename(path, old) != 0 || symlink(to, path) != 0) {
        fprintf(stderr, "no race: %s\n", strerror(errno));
        exit(9);
    }
}

static void play_race_file(void *arg)
{
    struct liar *liar = arg;

    answer_to(liar, 2);
    race(liar, "source/file", "../beside/secret");
    liar_say(liar, REMOTE_WANT, "\1\1", 2);
    liar_say(liar, REMOTE_WANT, "\0", 1);
    liar_hear(liar, &liar->files, 1);
    liar_say(liar, REMOTE_DONE, "\0\0\0\0\0", 5);
    liar_hear(liar, NULL, 0);
}

static void play_race_dir(void *arg)
{
    struct liar *liar = arg;

    answer_to(liar, 3);
    race(liar, "source/dir", "../beside");
    liar_say(liar, REMOTE_WANT, "\1\0", 2);
    liar_hear(liar, &liar->files, 1);
    liar_say(liar, REMOTE_DONE, "\0\0\0\0\0", 5);
    liar_hear(liar, NULL, 0);
}

static void play_silent(void *arg)
{
    liar_be_silent(arg);
}

static void play_silent_list(void *arg)
{
    struct liar *liar = arg;

    answer_to(liar, 2);
    liar_be_silent(liar);
}

static void play_endless(void *arg)
{
    struct liar *liar = arg;

    /* The length of a message, and never all of it. */
    answer_to(liar, 1);
    poise_buf_varint(&liar->channel.control, REMOTE_MESSAGE_MOST + 1);
    liar_hear(liar, NULL, 0);
}

const struct liar_case liar_pushes[] = {
    {"want_right", play_want_right, {0}, 0, NULL, "file"},
    {"want_dir", play_want_dir, {0}, -EBADMSG, "not offered", NULL},
    {"want_hard", play_want_hard, {0}, -EBADMSG, "not offered", NULL},
    {"want_link", play_want_link, {0}, -EBADMSG, "not offered", NULL},
    {"want_none", play_want_none, {0}, -EBADMSG, "not offered", NULL},
    {"want_many", play_want_many, {0}, -EBADMSG, "not offered", NULL},
    {"want_far", play_want_far, {0}, -EBADMSG, "not offered", NULL},
    {"want_flood", play_want_flood, {0}, -EBADMSG, "not offered", NULL},
    {"done_early", play_done_early, {0}, -EBADMSG, "done before", NULL},
    {"data", play_data, {0}, -EBADMSG, "no file", NULL},
    {"deed", play_deed, {0}, -EBADMSG, "unknown action", NULL},
    {"problem", play_problem, {0}, -EBADMSG, "done before", NULL},
    {"list", play_list, {0}, -EBADMSG, "unknown kind", NULL},
    {"race_file", play_race_file, {0}, 0, "file", NULL},
    {"race_dir", play_race_dir, {0}, 0, "file2", NULL},
    {"silent_push", play_silent, {0}, -ETIMEDOUT, "nothing comes", NULL},
    {"silent_list", play_silent_list, {0}, -ETIMEDOUT, "nothing comes", NULL},
    {"endless", play_endless, {0}, -EBADMSG, "length", NULL},
    {0},
};
