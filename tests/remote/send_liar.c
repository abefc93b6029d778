/* The other end of poise send, as a process that says what it likes: what
 * both roles need. */
#include "send_liar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what both roles need ----------------------------------------------- */

static int hear_message(enum remote_message kind, struct poise_reader *body,
                        void *arg)
{
    struct liar *liar = arg;

    (void)body;
    liar->wants += kind == REMOTE_WANT;
    liar->problems += kind == REMOTE_PROBLEM;
    liar->batches += kind == REMOTE_BATCH;
    liar->files += kind == REMOTE_FILE_END;
    liar->done = liar->done || kind == REMOTE_DONE;
    return 0;
}

static int hear_data(const void *data, size_t len, void *arg)
{
    struct liar *liar = arg;

    return poise_buf_append(&liar->heard, data, len);
}

int liar_open(struct liar *liar, int in, int out)
{
    struct poise_dedup_store_options options = {0};
    int code = poise_dedup_store_open(NULL, &options, &liar->channel.store);

    liar->channel.in = in;
    liar->channel.out = out;
    liar->channel.on_message = hear_message;
    liar->channel.on_data = hear_data;
    liar->channel.arg = liar;
    return code < 0 ? code : remote_channel_open(&liar->channel, 0, NULL);
}

void liar_close(struct liar *liar)
{
    remote_channel_close(&liar->channel);
    poise_dedup_store_close(liar->channel.store);
    poise_buf_free(&liar->heard);
}

void liar_hear(struct liar *liar, const unsigned *count, unsigned until)
{
    int code = 0;

    while (code == 0 && !liar->done && (!count || *count < until)) {
        code = remote_channel_flush(&liar->channel);
        code = code < 0 ? code : remote_channel_turn(&liar->channel, true);
    }
}

void liar_say(struct liar *liar, unsigned kind, const void *data, size_t len)
{
    struct poise_buf body = {0};

    poise_buf_append(&body, data, len);
    remote_channel_send(&liar->channel, (enum remote_message)kind, &body);
    poise_buf_free(&body);
}

int liar_skip_welcome(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    unsigned char head[16];
    uint64_t len;

    /* A greeting that was cut short is never answered. */
    if (poll(&poller, 1, 300) != 1 ||
        read(fd, head, sizeof head) != sizeof head) {
        return -1;
    }
    len = poise_get_u64(head + 8) >> 32;
    return len == 0 ? 0 : -1;
}

struct remote_entry liar_entry(const char *name, uint32_t mode)
{
    return (struct remote_entry){
        .name = name,
        .name_len = strlen(name),
        .meta = {.mode = mode,
                 .uid = geteuid(),
                 .gid = getegid(),
                 .mtime = {.tv_sec = 1000000000},
                 .size = S_ISREG(mode) ? 4 : 0},
    };
}

void liar_begin(struct liar *liar, unsigned single, uint64_t count)
{
    struct poise_buf body = {0};

    poise_buf_varint(&body, single);
    poise_buf_varint(&body, count);
    remote_channel_send(&liar->channel, REMOTE_BEGIN, &body);
    while (!liar->channel.met &&
           remote_channel_turn(&liar->channel, true) == 0) {
    }
    poise_buf_free(&body);
}

void liar_batch(struct liar *liar, unsigned flags,
                const struct remote_entry *entries, size_t count)
{
    struct poise_buf body = {0};
    struct remote_entry_context context = {0};

    poise_buf_varint(&body, flags);
    poise_buf_varint(&body, count);
    for (size_t i = 0; i < count; i++) {
        remote_entry_put(&body, &entries[i], &context);
    }
    /* Each list is one of its own here. */
    remote_channel_send_list(&liar->channel, REMOTE_BATCH, &body);
    poise_buf_free(&body);
}

void liar_list_end(struct liar *liar)
{
    remote_channel_send_list(&liar->channel, REMOTE_LIST_END, NULL);
}

void liar_file(struct liar *liar, const char *text)
{
    struct poise_buf body = {0};
    size_t len = strlen(text);

    liar_say(liar, REMOTE_FILE, NULL, 0);
    remote_channel_send_data(&liar->channel, text, len);
    remote_channel_end_data(&liar->channel);
    poise_buf_varint(&body, REMOTE_FILE_IS);
    poise_buf_varint(&body, len);
    poise_buf_u64(&body, remote_hash(0, text, len));
    remote_channel_send(&liar->channel, REMOTE_FILE_END, &body);
    poise_buf_free(&body);
}

/* Until it is gone: what it does not do by itself its timeout has to. */
void liar_be_silent(struct liar *liar)
{
    char byte;

    fcntl(liar->channel.in, F_SETFL, 0);
    while (read(liar->channel.in, &byte, 1) > 0) {
    }
}

void liar_path(const struct liar *liar, const char *name, char out[512])
{
    snprintf(out, 512, "%s/%s", liar->root, name);
}

/* ---- the process --------------------------------------------------------- */

static const struct liar_case *find(const char *name)
{
    const struct liar_case *tables[] = {liar_pulls, liar_pushes};

    for (int i = 0; i < 2; i++) {
        for (const struct liar_case *at = tables[i]; at->name; at++) {
            if (strcmp(at->name, name) == 0) {
                return at;
            }
        }
    }
    return NULL;
}

int liar_main(int argc, char **argv)
{
    struct liar liar = {0};
    const struct liar_case *play = argc > 3 ? find(argv[2]) : NULL;
    struct poise_remote_options options = {0};
    struct poise_buf memory = {0};
    struct poise_strings sources = {0};
    bool is_sender = false, gives = argc > 3 && argv[2][0] == 'g';
    char part[REMOTE_PART_BYTES];
    const char *seed = argc > 3 ? strchr(argv[2], '=') : NULL;

    signal(SIGPIPE, SIG_IGN);
    liar.root = argc > 3 ? argv[3] : "";
    if ((!play && !seed) ||
        remote_read_greeting(0, &options, &is_sender, &memory, &sources, part) <
            0 ||
        remote_send_welcome(1, 0) < 0 || liar_open(&liar, 0, 1) < 0) {
        return 9;
    }
    if (seed && argv[2][0] == 'f') {
        liar_flood(&liar);
    } else if (seed) {
        liar_storm(&liar, strtoull(seed + 1, NULL, 10), gives);
    } else {
        play->play(&liar);
    }
    liar_close(&liar);
    poise_strings_free(&sources);
    poise_buf_free(&memory);
    return 0;
}
