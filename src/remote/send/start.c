/* How the two ends find each other: one starts the other, by a remote shell
 * where it is on another host, and sends it a greeting. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAGIC_BYTES = 8,
    HEAD_BYTES = MAGIC_BYTES + 8, /* version, length of what follows */
    WORDS_MOST = 64,
    FLAG_SENDER = 1, /* the end that gets this sends, and this one receives */
    FLAG_REMOVE = 2,
    FLAG_DRY = 4,
    FLAG_ACTIONS = 8,
    FLAG_ONE_FILE_SYSTEM = 16,
    FLAG_CHECKSUM = 32,
    FLAG_IGNORE_TIMES = 64,
};
static const char magic[MAGIC_BYTES + 1] = "POISESND";

/* ---- operands ----------------------------------------------------------- */

size_t remote_host(const char *operand)
{
    size_t len = strcspn(operand, ":/");

    return operand[len] == ':' ? len : 0;
}

int remote_check_host(const char *operand, size_t host_len)
{
    const char *at = memrchr(operand, '@', host_len);
    const char *host = at ? at + 1 : operand;

    if (host_len > 0 && (operand[0] == '-' || host[0] == '-')) {
        return poise_error_set(EINVAL, "send", operand,
                               "a host cannot begin with '-' (a file: write "
                               "./ before it)");
    }
    return 0;
}

/* Whether "--" ends the options of a remote shell: not every one knows it. */
static bool is_ssh(const char *word)
{
    const char *slash = strrchr(word, '/');

    return strcmp(slash ? slash + 1 : word, "ssh") == 0;
}

/* ---- starting the other end --------------------------------------------- */

/* Split at blanks; quotes of both kinds hold words together. `text` is
 * changed. */
static int split_words(char *text, char **words)
{
    int count = 0;
    char *at = text, *to = text;

    while (*(at += strspn(at, " \t"))) {
        char quote = 0;

        if (count == WORDS_MOST - 8) {
            return poise_error_set(E2BIG, "use the remote shell", text, NULL);
        }
        words[count++] = to;
        for (; *at && (quote || !strchr(" \t", *at)); at++) {
            if (*at == quote) {
                quote = 0;
            } else if (!quote && (*at == '\'' || *at == '"')) {
                quote = *at;
            } else {
                *to++ = *at;
            }
        }
        at += *at ? 1 : 0;
        *to++ = 0;
    }
    return count;
}

static int spawn_words(char **words, int fd, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    int code = posix_spawn_file_actions_init(&actions);

    if (code) {
        return -code;
    }
    code = posix_spawnattr_init(&attributes);
    if (code) {
        posix_spawn_file_actions_destroy(&actions);
        return -code;
    }
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    code = posix_spawn_file_actions_adddup2(&actions, fd, 0);
    code = code ? code : posix_spawn_file_actions_adddup2(&actions, fd, 1);
    if (!code) {
        code =
            posix_spawnp(pid, words[0], &actions, &attributes, words, environ);
    }
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return -code;
}

/* The words that start the other end; they lie in `text`. */
static int make_words(const struct poise_remote_options *options,
                      const char *host, size_t host_len, struct poise_buf *text,
                      char **words)
{
    static const char ours[] = "send\0--server\0--";
    const char *shell = options->shell ? options->shell : "ssh";
    const char *program = options->program ? options->program : "poise";
    size_t at = strlen(shell) + 1, end;
    int count = 0;

    if (host_len > 0) {
        poise_buf_append(text, shell, at);
        poise_buf_append(text, host, host_len);
        poise_buf_putc(text, 0);
    } else {
        program = "/proc/self/exe";
    }
    poise_buf_append(text, program, strlen(program) + 1);
    end = text->len;
    poise_buf_append(text, ours, sizeof ours);
    if (text->error) {
        return text->error;
    }
    if (host_len > 0) {
        count = split_words(text->data, words);
        if (count < 0) {
            return count;
        }
        if (count > 0 && is_ssh(words[0])) {
            words[count++] = text->data + text->len - sizeof "--";
        }
        words[count++] = text->data + at;
        words[count++] = text->data + at + host_len + 1;
    } else {
        words[count++] = text->data;
    }
    words[count++] = text->data + end;
    words[count++] = text->data + end + strlen("send") + 1;
    words[count] = NULL;
    return 0;
}

static int put_greeting(const struct poise_remote_options *options,
                        const char *host, size_t host_len, bool is_sender,
                        struct poise_buf *out)
{
    struct poise_buf body = {0};
    char label[REMOTE_LABEL_BYTES];
    const char *cache = options->remote_cache;
    bool apart = !cache && !options->shared_cache && host_len > 0;
    unsigned flags = (is_sender ? 0 : FLAG_SENDER) |
                     (options->remove ? FLAG_REMOVE : 0) |
                     (options->dry ? FLAG_DRY : 0) |
                     (options->report_actions ? FLAG_ACTIONS : 0) |
                     (options->one_file_system ? FLAG_ONE_FILE_SYSTEM : 0) |
                     (options->checksum ? FLAG_CHECKSUM : 0) |
                     (options->ignore_times ? FLAG_IGNORE_TIMES : 0);

    poise_buf_varint(&body, flags);
    poise_buf_varint(&body, options->keep);
    poise_buf_varint(&body, (uint64_t)options->level);
    poise_buf_varint(&body, options->cache_bytes);
    poise_buf_varint(&body, options->cache_bits);
    poise_buf_varint(&body, options->silence_ns);
    poise_buf_putc(&body, options->segmenter ? 1 : 0);
    if (options->segmenter) {
        poise_buf_blob(&body, options->segmenter, strlen(options->segmenter));
    }
    if (apart && remote_cache_label(host, host_len, label) < 0) {
        apart = false;
        cache = ""; /* rather none than one that others use */
    }
    poise_buf_putc(&body, cache ? 1 : 0);
    if (cache) {
        poise_buf_blob(&body, cache, strlen(cache));
    }
    poise_buf_varint(&body, is_sender ? 1 : options->source_count);
    for (size_t i = 0; i < (is_sender ? 1 : options->source_count); i++) {
        const char *path = is_sender ? options->target : options->sources[i];
        poise_buf_blob(&body, path, strlen(path));
    }
    if (apart) {
        poise_buf_blob(&body, label, strlen(label));
    }
    poise_buf_append(out, magic, MAGIC_BYTES);
    poise_buf_u64(out, REMOTE_VERSION | (uint64_t)body.len << 32);
    poise_buf_append(out, body.data, body.len);
    if (body.error) {
        out->error = body.error;
    }
    poise_buf_free(&body);
    return out->error;
}

/* All of it, before anything else is done; the descriptor blocks still. */
static int write_all(int fd, const struct poise_buf *data)
{
    int code = data->error;

    return code < 0
               ? code
               : poise_file_write(fd, data->data, data->len, "the other end");
}

/* Until something is there to be read: 0. The user may not want to wait. */
static int await(int fd, const struct poise_remote_options *how,
                 uint64_t begun_ns)
{
    enum { TICK_MS = 200 };

    for (;;) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        int code = poll(&poller, 1, TICK_MS);

        if (how->stop && *how->stop) {
            return poise_error_set(EINTR, "begin the transfer", NULL,
                                   "it was interrupted");
        }
        if (code > 0 || (code < 0 && errno != EINTR)) {
            return 0; /* reading tells what is wrong */
        }
        if (how->silence_ns > 0 &&
            poise_clock_ns() - begun_ns > how->silence_ns) {
            return poise_error_set(ETIMEDOUT, "begin the transfer", NULL,
                                   "nothing comes from the other end");
        }
    }
}

/* Exactly so many bytes. */
static int read_all(int fd, const struct poise_remote_options *how, void *data,
                    size_t len)
{
    unsigned char *to = data;
    uint64_t begun_ns = poise_clock_ns();

    while (len > 0) {
        int err = await(fd, how, begun_ns);
        int code = err < 0 ? 0 : poise_fault_check(POISE_FAULT_READ);
        ssize_t bytes_read;

        if (err < 0) {
            return err;
        }
        bytes_read = code ? -1 : read(fd, to, len);
        code = code || bytes_read >= 0 ? code : errno;
        if (code == EINTR || code == EAGAIN) {
            continue;
        }
        if (code != 0 && code != ECONNRESET) {
            return poise_error_set(code, "read", "the other end", NULL);
        }
        if (bytes_read <= 0) {
            return poise_error_set(
                ECONNRESET, "begin the transfer", NULL,
                "the other end ended before it said "
                "anything; if the remote shell reached it, is "
                "poise installed there?");
        }
        to += bytes_read;
        len -= (size_t)bytes_read;
    }
    return 0;
}

/* The head of a greeting, and the length of what follows. */
static int read_head(int fd, const struct poise_remote_options *how,
                     size_t *len)
{
    unsigned char head[HEAD_BYTES];
    uint64_t rest;
    int code = read_all(fd, how, head, sizeof head);

    if (code < 0) {
        return code;
    }
    rest = poise_get_u64(head + MAGIC_BYTES);
    if (memcmp(head, magic, MAGIC_BYTES) != 0 ||
        rest >> 32 > REMOTE_MESSAGE_MOST) {
        return poise_error_set(
            EBADMSG, "begin the transfer", NULL,
            "what the other end sends is something else; do its shell's start "
            "files print?");
    }
    if ((uint32_t)rest != REMOTE_VERSION) {
        return poise_error_set(EPROTO, "begin the transfer", NULL,
                               "the other end's version is %lu, not %d",
                               (unsigned long)(uint32_t)rest, REMOTE_VERSION);
    }
    *len = (size_t)(rest >> 32);
    return 0;
}

/* What the other end says to the greeting: nothing, or what is wrong. */
static int read_welcome(int fd, const struct poise_remote_options *how)
{
    struct poise_buf text = {0};
    size_t len = 0;
    int code = read_head(fd, how, &len);

    if (code == 0 && len > 0) {
        char *to = poise_buf_reserve(&text, len);
        code = to ? read_all(fd, how, to, len) : -ENOMEM;
        text.len = code == 0 ? len : 0;
        if (code == 0) {
            code =
                poise_error_set(EREMOTEIO, "begin", NULL,
                                "the other end says: %s", poise_buf_str(&text));
        }
    }
    poise_buf_free(&text);
    return code;
}

int remote_start(const struct poise_remote_options *options, const char *host,
                 size_t host_len, bool is_sender, int *fd, pid_t *pid)
{
    struct poise_buf text = {0}, greeting = {0};
    char *words[WORDS_MOST];
    int pair[2], code;

    code = make_words(options, host, host_len, &text, words);
    if (code == 0) {
        code = put_greeting(options, host, host_len, is_sender, &greeting);
    }
    if (code < 0) {
        goto free_buffers;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        code = poise_error_set(errno, "connect", NULL, NULL);
        goto free_buffers;
    }
    code = spawn_words(words, pair[1], pid);
    close(pair[1]);
    if (code < 0) {
        poise_error_set(-code, "run", words[0], NULL);
        goto close_pair;
    }
    code = write_all(pair[0], &greeting);
    if (code == 0 || code == -EPIPE || code == -ECONNRESET) {
        /* What is gone may have said something before. */
        *fd = pair[0];
        code = 0;
        goto free_buffers;
    }
    close(pair[0]);
    remote_finish(*pid, code);
    goto free_buffers;
close_pair:
    close(pair[0]);
free_buffers:
    poise_buf_free(&text);
    poise_buf_free(&greeting);
    return code;
}

int remote_await_welcome(const struct poise_remote_options *options, int fd,
                         pid_t pid)
{
    int code = read_welcome(fd, options);

    if (code < 0) {
        close(fd);
        remote_finish(pid, code);
    }
    return code;
}

int remote_finish(pid_t pid, int code)
{
    int status;

    if (code == -ETIMEDOUT || code == -EINTR) {
        /* A process that says nothing may not end of itself either. */
        kill(pid, SIGTERM);
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return 0;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* ---- being the other end ------------------------------------------------ */

static const char *keep_string(struct poise_reader *from,
                               struct poise_buf *memory)
{
    size_t len;
    const char *text = poise_reader_blob(from, &len);
    char *to;

    if (!text || memchr(text, 0, len)) {
        from->error = -EBADMSG;
        return NULL;
    }
    to = poise_buf_reserve(memory, len + 1);
    if (!to) {
        from->error = -ENOMEM;
        return NULL;
    }
    memcpy(to, text, len);
    to[len] = 0;
    memory->len += len + 1;
    return to;
}

static int parse_greeting(struct poise_reader *from,
                          struct poise_remote_options *options, bool *is_sender,
                          struct poise_buf *memory,
                          struct poise_strings *sources,
                          char part[REMOTE_PART_BYTES])
{
    uint64_t flags = poise_reader_varint(from), count;
    const unsigned char *has;
    const char *label;

    *is_sender = flags & FLAG_SENDER;
    options->remove = flags & FLAG_REMOVE;
    options->dry = flags & FLAG_DRY;
    options->report_actions = flags & FLAG_ACTIONS;
    options->one_file_system = flags & FLAG_ONE_FILE_SYSTEM;
    options->checksum = flags & FLAG_CHECKSUM;
    options->ignore_times = flags & FLAG_IGNORE_TIMES;
    options->keep = (unsigned)poise_reader_varint(from) & POISE_WALK_KEEP_ALL;
    options->level = (int)(poise_reader_varint(from) & 31);
    options->cache_bytes = poise_reader_varint(from);
    options->cache_bits = (uint32_t)poise_reader_varint(from);
    options->silence_ns = poise_reader_varint(from);
    has = poise_reader_left(from) > 0 ? from->pos++ : NULL;
    options->segmenter = has && *has ? keep_string(from, memory) : NULL;
    has = poise_reader_left(from) > 0 ? from->pos++ : NULL;
    options->cache = has && *has ? keep_string(from, memory) : NULL;
    count = poise_reader_varint(from);
    if (from->error || count == 0 || count > poise_reader_left(from)) {
        return remote_bad("its greeting is cut short");
    }
    sources->items = poise_alloc((size_t)count, sizeof *sources->items);
    if (!sources->items) {
        return -ENOMEM;
    }
    while (sources->count < count && from->error == 0) {
        sources->items[sources->count++] = keep_string(from, memory);
    }
    options->sources = sources->items;
    options->source_count = sources->count;
    options->target = sources->items[0];
    label = from->error == 0 && poise_reader_left(from) > 0
                ? keep_string(from, memory)
                : NULL;
    if (label && !remote_cache_is_label(label)) {
        return remote_bad("its greeting names no cache");
    }
    snprintf(part, REMOTE_PART_BYTES, "%s%s", label ? "from-" : "",
             label ? label : "");
    return from->error ? remote_bad("its greeting is cut short") : 0;
}

int remote_read_greeting(int in, struct poise_remote_options *options,
                         bool *is_sender, struct poise_buf *memory,
                         struct poise_strings *sources,
                         char part[REMOTE_PART_BYTES])
{
    struct poise_buf body = {0};
    struct poise_reader reader;
    size_t len = 0;
    int code = read_head(in, options, &len);

    if (code == 0 && !poise_buf_reserve(&body, len + 1)) {
        code = -ENOMEM;
    }
    /* Strings stay where they are: this is all that they need. */
    if (code == 0 && !poise_buf_reserve(memory, 2 * len + 64)) {
        code = -ENOMEM;
    }
    if (code == 0) {
        code = read_all(in, options, body.data, len);
    }
    if (code == 0) {
        reader = poise_reader_of(body.data, len);
        code =
            parse_greeting(&reader, options, is_sender, memory, sources, part);
    }
    poise_buf_free(&body);
    return code;
}

int remote_send_welcome(int out, int code)
{
    struct poise_buf text = {0}, all = {0};

    if (code < 0) {
        poise_error_format(poise_error_last(), &text);
    }
    poise_buf_append(&all, magic, MAGIC_BYTES);
    poise_buf_u64(&all, REMOTE_VERSION | (uint64_t)text.len << 32);
    poise_buf_append(&all, text.data, text.len);
    code = write_all(out, &all);
    poise_buf_free(&text);
    poise_buf_free(&all);
    return code;
}
