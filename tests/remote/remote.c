/* poise send, its taking end before a giving end that lies, and the bytes of
 * entries. What both do for each other: tests/remote/send. */
#include "../temporary.h"
#include "remote/send/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poise/remove.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- entries ------------------------------------------------------------ */

static struct remote_entry entry_of(const char *name, uint32_t mode)
{
    return (struct remote_entry){
        .name = name,
        .name_len = strlen(name),
        .meta = {.mode = mode,
                 .uid = 1000,
                 .gid = 7,
                 .mtime = {.tv_sec = -5, .tv_nsec = 999999999},
                 .size = S_ISREG(mode) ? 123456789 : 0}};
}

static int put_and_get(const struct remote_entry *entry,
                       struct remote_entry *received, struct poise_buf *bytes)
{
    struct remote_entry_context out = {0}, in = {0};
    struct poise_reader reader;
    int code;

    poise_buf_reset(bytes);
    assert_int_equal(remote_entry_put(bytes, entry, &out), 0);
    reader = poise_reader_of(bytes->data, bytes->len);
    code = remote_entry_get(&reader, received, &in);
    if (code == 0) {
        assert_int_equal(poise_reader_left(&reader), 0);
        assert_int_equal(in.mode, out.mode);
        assert_int_equal(in.uid, out.uid);
        assert_int_equal(in.gid, out.gid);
        assert_true(in.seconds == out.seconds);
    }
    return code;
}

static void test_entry(void **state)
{
    struct poise_buf bytes = {0};
    struct remote_entry entry = entry_of("file \n\xff", S_IFREG | 04755),
                        received;

    (void)state;
    entry.meta.sparse = true;
    entry.meta.xattrs = "\6user.a\1x\6user.b\0";
    entry.meta.xattrs_len = 17;
    entry.same = "a/b";
    entry.same_len = 3;
    assert_int_equal(put_and_get(&entry, &received, &bytes), 0);
    assert_int_equal(received.name_len, entry.name_len);
    assert_memory_equal(received.name, entry.name, entry.name_len);
    assert_int_equal(received.meta.mode, entry.meta.mode);
    assert_int_equal(received.meta.size, entry.meta.size);
    assert_int_equal(received.meta.mtime.tv_sec, -5);
    assert_int_equal(received.meta.mtime.tv_nsec, 999999999);
    assert_true(received.meta.sparse);
    assert_int_equal(received.same_len, 3);
    assert_int_equal(received.meta.xattrs_len, 17);
    entry = entry_of("dev", S_IFCHR | 0600);
    entry.meta.major = 5;
    entry.meta.minor = 300;
    assert_int_equal(put_and_get(&entry, &received, &bytes), 0);
    assert_int_equal(received.meta.major, 5);
    assert_int_equal(received.meta.minor, 300);
    poise_buf_free(&bytes);
}

/* Cut anywhere, it is no entry, nor are these. */
static void test_entry_wrong(void **state)
{
    static const char *const names[] = {".", "..", "a/b", "/", "a/"};
    static const char *const paths[] = {"/etc", "../x", "a/../b", "a//b",
                                        "a/",   ".",    "a/."};
    struct poise_buf bytes = {0};
    struct remote_entry_context context = {0};
    struct remote_entry entry = entry_of("link", S_IFLNK | 0777), received;

    (void)state;
    entry.target = "target";
    entry.target_len = 6;
    assert_int_equal(put_and_get(&entry, &received, &bytes), 0);
    for (size_t len = 0; len < bytes.len; len++) {
        struct poise_reader reader = poise_reader_of(bytes.data, len);
        assert_int_equal(remote_entry_get(&reader, &received, &context),
                         -EBADMSG);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        entry = entry_of(names[i], S_IFREG | 0600);
        assert_int_equal(put_and_get(&entry, &received, &bytes), -EBADMSG);
    }
    entry = entry_of("zero", S_IFREG | 0600);
    entry.name_len = 5;
    assert_int_equal(put_and_get(&entry, &received, &bytes), -EBADMSG);
    entry = entry_of("", S_IFREG | 0600);
    assert_int_equal(put_and_get(&entry, &received, &bytes), -EBADMSG);
    entry = entry_of("kind", 0600);
    assert_int_equal(put_and_get(&entry, &received, &bytes), -EBADMSG);
    entry = entry_of("target", S_IFLNK | 0777);
    assert_int_equal(put_and_get(&entry, &received, &bytes), -EBADMSG);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        entry = entry_of("same", S_IFREG | 0600);
        entry.same = paths[i];
        entry.same_len = strlen(paths[i]);
        assert_int_equal(put_and_get(&entry, &received, &bytes), -EBADMSG);
    }
    poise_buf_free(&bytes);
}

/* ---- a giving end that lies --------------------------------------------- */

struct liar {
    char target[TEMPORARY_BYTES], beside[TEMPORARY_MORE];
    struct remote_channel channel;
    pthread_t thread;
    int served; /* what the other end returned */
    int fds[2];
    unsigned problems, wants;
    bool done, joined;
};

static void *serve(void *arg)
{
    struct liar *liar = arg;

    liar->served = poise_remote_serve(&(struct poise_remote_service){
        .in = liar->fds[1], .out = liar->fds[1]});
    close(liar->fds[1]);
    return NULL;
}

static int hear(enum remote_message kind, struct poise_reader *body, void *arg)
{
    struct liar *liar = arg;

    (void)body;
    liar->problems += kind == REMOTE_PROBLEM;
    liar->wants += kind == REMOTE_WANT;
    liar->done = liar->done || kind == REMOTE_DONE;
    return 0;
}

static int hear_data(const void *data, size_t len, void *arg)
{
    (void)data;
    (void)len;
    (void)arg;
    return -EBADMSG;
}

static void greet(struct liar *liar)
{
    struct poise_buf body = {0}, all = {0};
    unsigned char answer[16];

    poise_buf_varint(&body, 2); /* delete */
    poise_buf_varint(&body, POISE_WALK_KEEP_ALL);
    for (int i = 0; i < 4; i++) {
        poise_buf_varint(&body, 0);
    }
    poise_buf_putc(&body, 0);
    poise_buf_putc(&body, 1);
    poise_buf_blob(&body, "", 0);
    poise_buf_varint(&body, 1);
    poise_buf_blob(&body, liar->target, strlen(liar->target));
    poise_buf_append(&all, "POISESND", 8);
    poise_buf_u64(&all, REMOTE_VERSION | (uint64_t)body.len << 32);
    poise_buf_append(&all, body.data, body.len);
    assert_int_equal(write(liar->fds[0], all.data, all.len), (ssize_t)all.len);
    assert_int_equal(poise_file_read(liar->fds[0], answer, 16, ""), 16);
    assert_int_equal(poise_get_u64(answer + 8), REMOTE_VERSION);
    poise_buf_free(&body);
    poise_buf_free(&all);
}

static int begin(void **state)
{
    struct liar *liar = calloc(1, sizeof *liar);
    struct poise_buf body = {0};

    assert_non_null(liar);
    signal(SIGPIPE, SIG_IGN);
    assert_non_null(mkdtemp(temporary_name(liar->target, "remote")));
    snprintf(liar->beside, sizeof liar->beside, "%s-beside", liar->target);
    assert_int_equal(mkdir(liar->beside, 0700), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, liar->fds), 0);
    assert_int_equal(pthread_create(&liar->thread, NULL, serve, liar), 0);
    greet(liar);
    assert_int_equal(
        poise_dedup_store_open(NULL, &(struct poise_dedup_store_options){0},
                               &liar->channel.store),
        0);
    liar->channel.in = liar->channel.out = liar->fds[0];
    liar->channel.on_message = hear;
    liar->channel.on_data = hear_data;
    liar->channel.arg = liar;
    assert_int_equal(remote_channel_open(&liar->channel, 0, NULL), 0);
    poise_buf_varint(&body, 0);
    poise_buf_varint(&body, 1);
    assert_int_equal(remote_channel_send(&liar->channel, REMOTE_BEGIN, &body),
                     0);
    while (!liar->channel.met) {
        assert_int_equal(remote_channel_turn(&liar->channel, true), 0);
    }
    poise_buf_free(&body);
    *state = liar;
    return 0;
}

/* Everything that the other end has to say, to its end. */
static void hear_out(struct liar *liar)
{
    int code = remote_channel_flush(&liar->channel);

    while (code == 0 && !liar->done) {
        code = remote_channel_turn(&liar->channel, true);
    }
}

static int end(void **state)
{
    struct liar *liar = *state;

    remote_channel_close(&liar->channel);
    close(liar->fds[0]);
    if (!liar->joined) {
        pthread_join(liar->thread, NULL);
    }
    poise_dedup_store_close(liar->channel.store);
    assert_int_equal(poise_walk_remove(AT_FDCWD, liar->target), 0);
    assert_int_equal(poise_walk_remove(AT_FDCWD, liar->beside), 0);
    free(liar);
    return 0;
}

/* A part of the list with one entry, or without one. */
static void say_batch(struct liar *liar, const struct remote_entry *entry)
{
    struct poise_buf body = {0};
    struct remote_entry_context context = {0};

    poise_buf_varint(&body, 1);
    poise_buf_varint(&body, entry ? 1 : 0);
    if (entry) {
        remote_entry_put(&body, entry, &context);
    }
    assert_int_equal(
        remote_channel_send_list(&liar->channel, REMOTE_BATCH, &body), 0);
    poise_buf_free(&body);
}

static void expect_refused(struct liar *liar)
{
    hear_out(liar);
    assert_false(liar->done);
    assert_int_equal(liar->problems, 1);
    /* Its thread ends by itself. */
    assert_int_equal(pthread_join(liar->thread, NULL), 0);
    liar->joined = true;
    assert_int_equal(liar->served, -EBADMSG);
}

static void test_liar_name(void **state)
{
    struct liar *liar = *state;
    struct remote_entry entry = entry_of("../x", S_IFREG | 0600);

    say_batch(liar, &entry);
    expect_refused(liar);
}

static void test_liar_file(void **state)
{
    struct liar *liar = *state;

    assert_int_equal(remote_channel_send(&liar->channel, REMOTE_FILE, NULL), 0);
    expect_refused(liar);
}

static void test_liar_data(void **state)
{
    struct liar *liar = *state;

    assert_int_equal(remote_channel_send_data(&liar->channel, "data", 4), 0);
    expect_refused(liar);
}

static void test_liar_list(void **state)
{
    struct liar *liar = *state;

    say_batch(liar, NULL);
    say_batch(liar, NULL);
    expect_refused(liar);
}

static void test_liar_end(void **state)
{
    struct liar *liar = *state;

    assert_int_equal(
        remote_channel_send_list(&liar->channel, REMOTE_LIST_END, NULL), 0);
    expect_refused(liar);
}

static void test_liar_kind(void **state)
{
    struct liar *liar = *state;

    assert_int_equal(
        remote_channel_send(&liar->channel, (enum remote_message)99, NULL), 0);
    expect_refused(liar);
}

static void say_wrong_file(struct liar *liar, const char *text)
{
    struct poise_buf body = {0};

    assert_int_equal(remote_channel_send(&liar->channel, REMOTE_FILE, NULL), 0);
    assert_int_equal(
        remote_channel_send_data(&liar->channel, text, strlen(text)), 0);
    assert_int_equal(remote_channel_end_data(&liar->channel), 0);
    poise_buf_varint(&body, REMOTE_FILE_IS);
    poise_buf_varint(&body, strlen(text));
    poise_buf_u64(&body, remote_hash(0, text, strlen(text)) + 1);
    assert_int_equal(
        remote_channel_send(&liar->channel, REMOTE_FILE_END, &body), 0);
    poise_buf_free(&body);
}

static bool is_there(const struct liar *liar, const char *name)
{
    char path[TEMPORARY_MORE + 100];

    snprintf(path, sizeof path, "%s/%s", liar->target, name);
    return access(path, F_OK) == 0;
}

/* A digest that is wrong: no file, a word, and all goes on. */
static void test_digest(void **state)
{
    struct liar *liar = *state;
    struct remote_entry entry = entry_of("file", S_IFREG | 0600);

    say_batch(liar, &entry);
    assert_int_equal(remote_channel_flush(&liar->channel), 0);
    while (liar->wants == 0) {
        assert_int_equal(remote_channel_turn(&liar->channel, true), 0);
    }
    say_wrong_file(liar, "what it is");
    assert_int_equal(
        remote_channel_send_list(&liar->channel, REMOTE_LIST_END, NULL), 0);
    hear_out(liar);
    assert_true(liar->done);
    assert_int_equal(liar->problems, 1);
    assert_false(is_there(liar, "file"));
    assert_int_equal(rmdir(liar->target), 0); /* nothing else is in it */
    assert_int_equal(mkdir(liar->target, 0700), 0);
}

/* What the target links to is not the target: a link in it is replaced by the
 * directory, and what it led to is left alone. */
static void test_link_out(void **state)
{
    struct liar *liar = *state;
    struct remote_entry entry = entry_of("way", S_IFDIR | 0700);
    struct remote_entry below = entry_of("below", S_IFDIR | 0700);
    char path[TEMPORARY_MORE];

    /* Root in a container may not be allowed to give files away. */
    entry.meta.uid = below.meta.uid = geteuid();
    entry.meta.gid = below.meta.gid = getegid();
    snprintf(path, sizeof path, "%s/way", liar->target);
    assert_int_equal(symlink(liar->beside, path), 0);
    say_batch(liar, &entry);
    say_batch(liar, &below);
    say_batch(liar, NULL);
    assert_int_equal(
        remote_channel_send_list(&liar->channel, REMOTE_LIST_END, NULL), 0);
    hear_out(liar);
    assert_true(liar->done);
    assert_int_equal(liar->problems, 0);
    assert_true(is_there(liar, "way/below"));
    assert_int_equal(rmdir(liar->beside), 0); /* it is empty */
    assert_int_equal(mkdir(liar->beside, 0700), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entry),
        cmocka_unit_test(test_entry_wrong),
        TEST(test_liar_name),
        TEST(test_liar_file),
        TEST(test_liar_data),
        TEST(test_liar_list),
        TEST(test_liar_end),
        TEST(test_liar_kind),
        TEST(test_digest),
        TEST(test_link_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
