/*
 * The emulator's door, and visitors who mean it no good: what is not a whole
 * request is hung up on, nothing of it is run, and honest ones are served
 * meanwhile. No testbed is needed: hosts are not found, which is an answer.
 */
#include "../slowness.h"
#include "../temporary.h"

#include <poise/wan.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_S = 60, SOAK_S = 60, FAILED = 125 };

static char folder[TEMPORARY_BYTES], path[TEMPORARY_MORE];
static int64_t door;

static int come(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct timeval most = {.tv_sec = (time_t)slowness_s(WAIT_S)};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_true(strlen(path) < sizeof at.sun_path);
    memcpy(at.sun_path, path, strlen(path));
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    return fd;
}

/* So many bytes, and so many descriptors with them. */
static void say(int fd, const void *data, size_t len, unsigned files)
{
    int all[8] = {0};
    char room[CMSG_SPACE(sizeof all)] = {0};
    struct iovec part = {(void *)(uintptr_t)data, len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (files > 0) {
        message.msg_control = room;
        message.msg_controllen = CMSG_SPACE(files * sizeof *all);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(files * sizeof *all);
        memcpy(CMSG_DATA(head), all, files * sizeof *all);
    }
    (void)!sendmsg(fd, &message, MSG_NOSIGNAL);
}

/* The answer; -1: it hung up. */
static int hear(int fd)
{
    uint32_t answer = 0;
    ssize_t got;
    do {
        got = recv(fd, &answer, sizeof answer, 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        fail_msg("it takes for ever");
    }
    return got == sizeof answer ? (int)answer : -1;
}

static void ask_honestly(void)
{
    char word[] = "true";
    char *argv[] = {word, NULL};
    int status = 0;
    assert_int_equal(poise_wan_door_ask(path, "nowhere", argv, &status), 0);
    assert_int_equal(status, FAILED);
}

/* A whole request is answered, whatever else is wrong with it. */
static void test_answer(void **state)
{
    int fd = come();
    (void)state;
    ask_honestly();
    say(fd, "nowhere\0true", sizeof "nowhere\0true", 3);
    assert_int_equal(hear(fd), FAILED);
    close(fd);
}

static void test_not_whole(void **state)
{
    static char many[70000], words[1200];
    static const struct {
        const char *data;
        size_t len;
        unsigned files;
    } wrong[] = {
        {"nowhere\0true", 13, 0}, /* no files */
        {"nowhere\0true", 13, 2}, /* too few */
        {"nowhere\0true", 13, 4}, /* too many */
        {"nowhere\0true", 13, 8}, /* and more than there is room for */
        {"nowhere\0true", 12, 3}, /* the last word does not end */
        {"nowhere", 8, 3},        /* no command */
        {"\0true", 6, 3},         /* no host */
        {"\0\0", 2, 3},           /* neither */
        {"", 1, 3},               /* nor anything */
        {many, sizeof many, 3},   /* cut at the end of a word */
        {many, 65536 + 8, 3},     /* the same */
        {words, sizeof words, 3}, /* more words than are taken */
    };
    (void)state;
    memset(many, 'x', sizeof many);
    for (size_t i = 7; i < sizeof many; i += 8192) {
        many[i] = 0;
    }
    many[65535] = many[65543] = many[sizeof many - 1] = 0;
    for (size_t i = 0; i < sizeof words; i++) {
        words[i] = i % 2 ? 0 : 'x';
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int fd = come();
        say(fd, wrong[i].data, wrong[i].len, wrong[i].files);
        if (hear(fd) != -1) {
            fail_msg("case %zu was answered", i);
        }
        close(fd);
    }
    ask_honestly();
}

/* An own request that is too large is not sent. */
static void test_too_large(void **state)
{
    static char large[70000];
    static char *argv[700];
    char word[] = "x";
    int status = 0;
    (void)state;
    memset(large, 'x', sizeof large - 1);
    argv[0] = large;
    assert_int_equal(poise_wan_door_ask(path, "nowhere", argv, &status),
                     -E2BIG);
    for (size_t i = 0; i < 699; i++) {
        argv[i] = word;
    }
    assert_int_equal(poise_wan_door_ask(path, "nowhere", argv, &status),
                     -E2BIG);
}

/* Those who say nothing, or go at once, or say more and more. */
static void test_silent(void **state)
{
    enum { MANY = 40, MOST = 700 };
    int fds[MOST], count = getenv("POISE_TEST_SOAK") ? MOST : MANY;
    (void)state;
    for (int i = 0; i < count; i++) {
        fds[i] = come();
        if (i % 3 == 1) {
            close(fds[i]);
            fds[i] = -1;
        }
    }
    if (count == MANY) {
        ask_honestly();
    }
    for (int i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            say(fds[i], "nowhere\0true", 13, 3);
            say(fds[i], "more", 4, 3);
            say(fds[i], "more", 4, 0);
            close(fds[i]);
        }
    }
    ask_honestly();
}

/* Anything, by seed. */
static void test_anything(void **state)
{
    static char bytes[4096];
    const char *soak = getenv("POISE_TEST_SOAK");
    uint64_t seconds = soak ? strtoull(soak, NULL, 10) : 0, seed = 1;
    uint64_t until;
    struct poise_rng rng;
    (void)state;
    seconds = soak && seconds < SOAK_S ? SOAK_S : seconds;
    if (soak) {
        seed = poise_clock_ns();
        print_message("seed %llu\n", (unsigned long long)seed);
    }
    poise_rng_seed(&rng, seed);
    until = poise_clock_ns() + seconds * UINT64_C(1000000000);
    for (int i = 0; i < 30 || poise_clock_ns() < until; i++) {
        int fd = come();
        for (uint64_t n = poise_rng_below(&rng, 4); n > 0; n--) {
            size_t len = 1 + poise_rng_below(&rng, sizeof bytes);
            for (size_t b = 0; b < len; b++) {
                bytes[b] = poise_rng_below(&rng, 4) ? (char)poise_rng_next(&rng)
                                                    : '\0';
            }
            say(fd, bytes, len, (unsigned)poise_rng_below(&rng, 6));
        }
        if (poise_rng_below(&rng, 2)) {
            shutdown(fd, SHUT_WR);
            (void)hear(fd);
        }
        close(fd);
    }
    ask_honestly();
}

static int open_door(void **state)
{
    static struct poise_wan_testbed nothing;
    (void)state;
    if (!mkdtemp(temporary_name(folder, "door"))) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/door", folder);
    return poise_wan_door_open(&nothing, path, &door);
}

static int close_door(void **state)
{
    (void)state;
    poise_wan_door_close(path, door);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer),    cmocka_unit_test(test_not_whole),
        cmocka_unit_test(test_too_large), cmocka_unit_test(test_silent),
        cmocka_unit_test(test_anything),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, open_door, close_door);
}
