/*
 * Ping-pong over TCP without Nagle's algorithm: messages of each size go there
 * and back, one at a time. Prints for each size, in microseconds, half of the
 * median, least and 99th percentile of the round trips, and the median
 * one-way bandwidth in Mbit/s, as message passing benchmarks mean it.
 *
 * usage: pingpong serve PORT
 *        pingpong HOST PORT SECONDS SIZE...
 *
 * A client stays SECONDS at each size.
 * Source: latency-bandwidth-thesis 8.1, figures 4 to 7.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST_TRIPS 200000
#define LEAST_TRIPS 4

static _Noreturn void fail(const char *doing)
{
    fprintf(stderr, "pingpong: cannot %s: %s\n", doing, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

/* All of it, or false at the end of the stream. */
static bool take(int fd, char *data, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t got = read(fd, data + done, len - done);
        if (got == 0) {
            return false;
        }
        if (got < 0 && errno != EINTR) {
            fail("receive");
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static void give(int fd, const char *data, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t put = write(fd, data + done, len - done);
        if (put < 0 && errno != EINTR) {
            fail("send");
        }
        done += put > 0 ? (size_t)put : 0;
    }
}

static void no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* One client after the other; each says first what sizes will come. */
static int serve(const char *port)
{
    struct sockaddr_in any = {.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)atoi(port))};
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (listener < 0 ||
        bind(listener, (struct sockaddr *)&any, sizeof any) < 0 ||
        listen(listener, 8) < 0) {
        fail("listen");
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        uint64_t size;
        char *data = NULL;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) {
            fail("accept");
        }
        no_delay(fd);
        while (take(fd, (char *)&size, sizeof size)) {
            bool more = true;
            data = realloc(data, size);
            if (!data) {
                fail("allocate");
            }
            /* Each message begins with whether it is the last of its size. */
            while (more) {
                if (!take(fd, data, size)) {
                    fail("receive");
                }
                more = data[0] != 0;
                give(fd, data, size);
            }
        }
        free(data);
        close(fd);
    }
}

static int reach(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *where = NULL;
    if (getaddrinfo(host, port, &hints, &where) != 0) {
        fail("find the host");
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, where->ai_addr, where->ai_addrlen) < 0) {
        fail("connect");
    }
    freeaddrinfo(where);
    no_delay(fd);
    return fd;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(int fd, uint64_t size, double seconds)
{
    static double trips[MOST_TRIPS];
    char *data = calloc(1, size);
    size_t count = 0;
    if (!data) {
        fail("allocate");
    }
    give(fd, (const char *)&size, sizeof size);
    /* The first few open TCP's window. */
    double until = now_us() + seconds * 1e6;
    for (int i = 0; data[0] || i == 0; i++) {
        data[0] =
            (now_us() < until || count < LEAST_TRIPS) && count < MOST_TRIPS - 1;
        double begun = now_us();
        give(fd, data, size);
        if (!take(fd, data, size)) {
            fail("receive");
        }
        if (i >= 3) {
            trips[count++] = now_us() - begun;
        }
    }
    qsort(trips, count, sizeof *trips, by_value);
    double median = trips[count / 2] / 2;
    printf("%llu %.2f %.2f %.2f %.3f %zu\n", (unsigned long long)size, median,
           trips[0] / 2, trips[count * 99 / 100] / 2, (double)size * 8 / median,
           count);
    fflush(stdout);
    free(data);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        return serve(argv[2]);
    }
    if (argc < 5) {
        fprintf(stderr, "usage: pingpong serve PORT\n"
                        "       pingpong HOST PORT SECONDS SIZE...\n");
        return 2;
    }
    int fd = reach(argv[1], argv[2]);
    for (int i = 4; i < argc; i++) {
        measure(fd, strtoull(argv[i], NULL, 10), atof(argv[3]));
    }
    close(fd);
    return 0;
}
