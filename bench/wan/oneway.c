/*
 * Datagrams in one direction between hosts that share a clock, as those of a
 * testbed do: what became of each. The receiver prints, when the sender is
 * done:
 *
 *   received, lost, came behind a later one, came again (counts),
 *   least, median and 99th percentile of the delays (us), their deviation (us),
 *   bits a second between the first and the last (with IP's and UDP's heads)
 *
 * usage: oneway serve PORT
 *        oneway HOST PORT COUNT GAP_US BYTES
 *
 * Source: latency-bandwidth-thesis 8.1, V.A.
 */
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 1000000
#define HEADS 28
#define SILENCE_S 5

struct datagram {
    uint64_t number, count; /* number == count: the end */
    uint64_t sent_ns;
};

static _Noreturn void fail(const char *doing)
{
    fprintf(stderr, "oneway: cannot %s: %s\n", doing, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double delays[MOST];
static bool seen[MOST];

static void serve(int port)
{
    struct sockaddr_in here = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port)};
    struct timeval silence = {.tv_sec = SILENCE_S};
    static char buffer[65536];
    struct datagram *d = (void *)buffer;
    uint64_t got = 0, behind = 0, again = 0, next = 0, count = 0;
    uint64_t first_ns = 0, last_ns = 0, bytes = 0;
    int fd = socket(AF_INET, SOCK_DGRAM, 0), room = 8 << 20;
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) < 0) {
        fail("bind");
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        ssize_t len = recv(fd, buffer, sizeof buffer, 0);
        uint64_t now = now_ns();
        if (len < (ssize_t)sizeof *d || d->number >= d->count ||
            d->number >= MOST) {
            break;
        }
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
        count = d->count;
        if (seen[d->number]) {
            again++;
            continue;
        }
        seen[d->number] = true;
        behind += d->number < next;
        next = d->number >= next ? d->number + 1 : next;
        delays[got++] = (double)(now - d->sent_ns) / 1e3;
        bytes += first_ns ? (uint64_t)len + HEADS : 0;
        first_ns = first_ns ? first_ns : now;
        last_ns = now;
    }
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < got; i++) {
        sum += delays[i];
        squares += delays[i] * delays[i];
    }
    if (got == 0) {
        printf("0 0 0 0 0 0 0 0 0\n");
        return;
    }
    qsort(delays, got, sizeof *delays, by_number);
    double mean = sum / (double)got;
    printf("%llu %llu %llu %llu %.1f %.1f %.1f %.1f %.0f\n",
           (unsigned long long)got, (unsigned long long)(count - got),
           (unsigned long long)behind, (unsigned long long)again, delays[0],
           delays[got / 2], delays[got * 99 / 100],
           sqrt(fabs(squares / (double)got - mean * mean)),
           last_ns > first_ns
               ? (double)bytes * 8e9 / (double)(last_ns - first_ns)
               : 0);
}

static void send_all(const char *host, const char *port, uint64_t count,
                     uint64_t gap_us, size_t bytes)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *to;
    static char buffer[65536];
    struct datagram *d = (void *)buffer;
    if (getaddrinfo(host, port, &hints, &to) != 0) {
        fail("find the host");
    }
    int fd = socket(to->ai_family, SOCK_DGRAM, 0);
    if (fd < 0 || connect(fd, to->ai_addr, to->ai_addrlen) < 0) {
        fail("connect");
    }
    bytes = bytes < sizeof *d ? sizeof *d : bytes;
    uint64_t begin = now_ns();
    for (uint64_t i = 0; i < count; i++) {
        struct timespec at = {
            .tv_sec = (time_t)((begin + i * gap_us * 1000) / 1000000000),
            .tv_nsec = (long)((begin + i * gap_us * 1000) % 1000000000)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        *d = (struct datagram){i, count, now_ns()};
        if (send(fd, buffer, bytes, 0) < 0 && errno != ENOBUFS) {
            fail("send");
        }
    }
    /* What is on its way arrives first; of some ends one will. */
    for (int i = 0; i < 50; i++) {
        const struct timespec nap = {.tv_nsec = i ? 20000000 : 500000000};
        nanosleep(&nap, NULL);
        *d = (struct datagram){count, count, 0};
        if (send(fd, buffer, sizeof *d, 0) < 0) {
            break; /* it is gone */
        }
    }
    close(fd);
    freeaddrinfo(to);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        serve(atoi(argv[2]));
        return 0;
    }
    if (argc != 6) {
        fprintf(stderr, "usage: oneway serve PORT | HOST PORT COUNT GAP_US "
                        "BYTES\n");
        return 2;
    }
    send_all(argv[1], argv[2], strtoull(argv[3], NULL, 10),
             strtoull(argv[4], NULL, 10), strtoul(argv[5], NULL, 10));
    return 0;
}
