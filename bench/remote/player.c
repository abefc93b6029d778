/*
 * A recorded session as a VNC server that shows it again at its times, and a
 * viewer that says when each of its pictures was there to the last pixel, for
 * bench/remote/screens_link.
 *
 *     player serve SESSION PORT LOG    any address, one viewer, then the end
 *     player show SESSION HOST:PORT LOG
 *
 * Each line of a log is the number of an update and a time in nanoseconds of
 * CLOCK_MONOTONIC: before the first byte of it is written, and behind the
 * update after which the viewer's picture has the hash of the session's. What
 * the viewer does not ask for in time waits, and goes with what follows.
 */
#include <poise/screen.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_MS = 6000, IDLE_MS = 90000, LAST_MS = 4000 };

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "player: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- a server ------------------------------------------------------------ */

static void take(int fd, unsigned char *to, size_t count)
{
    while (count > 0) {
        ssize_t got = read(fd, to, count);
        if (got <= 0) {
            die("the viewer is gone");
        }
        to += got;
        count -= (size_t)got;
    }
}

static void put(int fd, const void *from, size_t count)
{
    const unsigned char *at = from;
    while (count > 0) {
        ssize_t put = send(fd, at, count, MSG_NOSIGNAL);
        if (put <= 0) {
            die("the viewer is gone");
        }
        at += put;
        count -= (size_t)put;
    }
}

static unsigned char *put_u16(unsigned char *to, uint32_t value)
{
    to[0] = (unsigned char)(value >> 8);
    to[1] = (unsigned char)value;
    return to + 2;
}

static int await_viewer(const char *port)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(port))};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (const void *)&at, sizeof at) != 0 ||
        listen(listener, 1) != 0) {
        die("listen");
    }
    puts("ready");
    fflush(stdout);
    int fd = accept(listener, NULL, NULL);
    close(listener);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void shake_hands(int fd, const struct poise_screen_picture *picture)
{
    unsigned char bytes[24] = {0};
    put(fd, "RFB 003.008\n", 12);
    take(fd, bytes, 12);
    put(fd, "\1\1", 2);
    take(fd, bytes, 1);
    put(fd, "\0\0\0\0", 4);
    take(fd, bytes, 1);
    memset(bytes, 0, sizeof bytes);
    put_u16(put_u16(bytes, picture->width), picture->height);
    put(fd, bytes, sizeof bytes);
}

/* Messages that are there now, or, while `wait`, one: how many ask. */
static unsigned hear(int fd, bool wait)
{
    unsigned asked = 0;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    while (poll(&poll_fd, 1, wait && asked == 0 ? -1 : 0) > 0) {
        unsigned char head[20];
        take(fd, head, 1);
        if (head[0] == 2) {
            take(fd, head, 3);
            for (int n = head[1] << 8 | head[2]; n > 0; n--) {
                take(fd, head, 4);
            }
        } else if (head[0] == 3) {
            take(fd, head, 9);
            asked++;
        } else if (head[0] == 0) {
            take(fd, head, 19);
        } else if (head[0] == 150) {
            take(fd, head, 9);
        } else {
            errno = EBADMSG;
            die("a message of the viewer");
        }
    }
    return asked;
}

/* Rectangles that wait, and the steps that they are of. */
struct waiting {
    struct poise_screen_rect *rects;
    size_t count, room;
    uint64_t first, end;
};

static void add(struct waiting *waiting, const struct poise_screen_step *step)
{
    if (waiting->count + step->rect_count > waiting->room) {
        waiting->room = 2 * (waiting->count + step->rect_count);
        waiting->rects =
            realloc(waiting->rects, waiting->room * sizeof *waiting->rects);
        if (!waiting->rects) {
            die("rectangles");
        }
    }
    memcpy(waiting->rects + waiting->count, step->rects,
           step->rect_count * sizeof *step->rects);
    waiting->count += step->rect_count;
    waiting->end++;
}

static void send_all(int fd, struct waiting *waiting,
                     const struct poise_screen_picture *picture, FILE *log)
{
    unsigned char head[12] = {0};
    for (; waiting->first < waiting->end; waiting->first++) {
        fprintf(log, "%llu %llu\n", (unsigned long long)waiting->first,
                (unsigned long long)now_ns());
    }
    put_u16(head + 2, (uint32_t)waiting->count);
    put(fd, head, 4);
    for (size_t i = 0; i < waiting->count; i++) {
        const struct poise_screen_rect *rect = &waiting->rects[i];
        memset(head, 0, sizeof head);
        put_u16(put_u16(put_u16(put_u16(head, rect->x), rect->y), rect->width),
                rect->height);
        put(fd, head, sizeof head);
        for (uint32_t y = rect->y; y < rect->y + rect->height; y++) {
            put(fd, picture->pixels + (size_t)y * picture->width + rect->x,
                rect->width * sizeof *picture->pixels);
        }
    }
    waiting->count = 0;
}

static void serve(struct poise_screen_reader *reader, const char *port,
                  FILE *log)
{
    const struct poise_screen_picture *picture =
        poise_screen_reader_picture(reader);
    struct poise_screen_step step;
    struct waiting waiting = {0};
    int code = poise_screen_reader_next(reader, &step);
    int fd = await_viewer(port);
    unsigned asked;
    uint64_t begun = 0;
    shake_hands(fd, picture);
    asked = hear(fd, true);
    for (; code > 0; code = poise_screen_reader_next(reader, &step)) {
        uint64_t due = begun + step.at_us * 1000;
        while (begun > 0 && now_ns() < due) {
            usleep(300);
        }
        add(&waiting, &step);
        asked += hear(fd, begun == 0 && asked == 0);
        if (asked > 0) {
            send_all(fd, &waiting, picture, log);
            asked = 0;
        }
        if (begun == 0) { /* the first one, as long as it takes */
            usleep(FIRST_MS * 1000);
            begun = now_ns() - step.at_us * 1000;
        }
    }
    if (waiting.count > 0) {
        hear(fd, asked == 0);
        send_all(fd, &waiting, picture, log);
    }
    fflush(log);
    hear(fd, true);
    usleep(LAST_MS * 1000);
}

/* ---- a viewer ------------------------------------------------------------ */

static uint64_t *hash_all(struct poise_screen_reader *reader, size_t *count)
{
    struct poise_screen_step step;
    uint64_t *hashes = NULL;
    *count = 0;
    while (poise_screen_reader_next(reader, &step) > 0) {
        hashes = realloc(hashes, (*count + 1) * sizeof *hashes);
        if (!hashes) {
            die("hashes");
        }
        hashes[(*count)++] =
            poise_screen_hash(poise_screen_reader_picture(reader));
    }
    return hashes;
}

static void show(struct poise_screen_reader *reader, const char *address,
                 FILE *log)
{
    size_t count, next = 0;
    uint64_t *hashes = hash_all(reader, &count);
    struct poise_screen_options how = {.encodings = "raw",
                                       .timeout_ms = IDLE_MS};
    struct poise_screen_client *client;
    struct poise_screen_update update;
    if (poise_screen_connect(address, &how, &client) < 0 ||
        poise_screen_ask(client, false) < 0) {
        struct poise_buf why = {0};
        poise_error_format(poise_error_last(), &why);
        fprintf(stderr, "player: %s\n", poise_buf_str(&why));
        exit(1);
    }
    while (next < count && poise_screen_next(client, IDLE_MS, &update) > 0) {
        uint64_t at = now_ns();
        uint64_t hash = poise_screen_hash(poise_screen_picture(client));
        poise_screen_ask(client, true);
        size_t i = next; /* the first: it may come again */
        while (i < count && hashes[i] != hash) {
            i++;
        }
        for (; i < count && next <= i; next++) {
            fprintf(log, "%zu %llu\n", next, (unsigned long long)at);
        }
    }
    printf("%zu of %zu pictures were shown\n", next, count);
    poise_screen_close(client);
    free(hashes);
}

int main(int argc, char **argv)
{
    struct poise_screen_reader *reader;
    FILE *log;
    if (argc != 5 ||
        (strcmp(argv[1], "serve") != 0 && strcmp(argv[1], "show") != 0)) {
        fprintf(stderr, "usage: player serve|show SESSION WHERE LOG\n");
        return 2;
    }
    log = fopen(argv[4], "we");
    if (!log || poise_screen_reader_open(argv[2], &reader) < 0) {
        die(argv[2]);
    }
    (strcmp(argv[1], "serve") == 0 ? serve : show)(reader, argv[3], log);
    fclose(log);
    poise_screen_reader_close(reader);
    return 0;
}
