/* Record logs: whole or not at all, whatever fails or is altered. */
#include <poise/core.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MAGIC "PTESTLOG"
#define VERSION 3

static char folder[4096]; /* global: the scratch directory of this run */
static char path[4200];   /* global: the log of every test */

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/poise-log-XXXXXX",
             base != NULL ? base : "/tmp");
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    snprintf(path, sizeof path, "%s/log", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails if a temporary file is left */
}

static unsigned files_in_folder(void)
{
    unsigned count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        count +=
            strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(dir);
    return count;
}

/* Record i of a log of `kind`: its length, its content by a rule. */
static size_t record_bytes(int kind, uint32_t i)
{
    static const size_t small[] = {0, 1, 7, 8, 40, 300};
    static const size_t large[] = {200000, 0, 65536, 65520, 5, 65521, 70000};
    return kind == 0 ? small[i % 6] : large[i % 7];
}

static void record_fill(unsigned char *data, size_t len, uint32_t i)
{
    for (size_t at = 0; at < len; at++) {
        data[at] = (unsigned char)(at * 31 + i * 7 + (at >> 8));
    }
}

static int write_log(int kind, uint32_t records)
{
    struct poise_log *log;
    unsigned char *data = malloc(200000);
    assert_non_null(data);
    int code = poise_log_create(path, MAGIC, VERSION, &log);
    if (code != 0) {
        goto done;
    }
    for (uint32_t i = 0; i < records && code == 0; i++) {
        size_t len = record_bytes(kind, i);
        record_fill(data, len, i);
        code = poise_log_append(log, i * 3, data, len);
    }
    if (code != 0) {
        assert_int_equal(poise_log_append(log, 1, "x", 1), code);
        assert_int_equal(poise_log_commit(log), code);
        goto done;
    }
    uint64_t bytes = poise_log_bytes(log);
    code = poise_log_commit(log);
    struct stat st;
    if (code == 0) {
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, bytes + 24); /* and the end record */
    }
done:
    free(data);
    return code;
}

/* 0 if the log can be opened and holds exactly those records. */
static int read_log(int kind, uint32_t records)
{
    struct poise_log_reader *reader;
    int code = poise_log_open(path, MAGIC, VERSION, &reader);
    if (code != 0) {
        return code;
    }
    unsigned char *expected = malloc(200000);
    assert_non_null(expected);
    uint32_t count = 0, type;
    const void *data;
    size_t len;
    while ((code = poise_log_next(reader, &type, &data, &len)) == 1) {
        assert_true(count < records);
        assert_int_equal(type, count * 3);
        assert_int_equal(len, record_bytes(kind, count));
        record_fill(expected, len, count);
        assert_memory_equal(data, expected, len);
        count++;
    }
    if (code == 0) {
        assert_int_equal(count, records);
        assert_int_equal(poise_log_next(reader, &type, &data, &len), 0);
    }
    free(expected);
    poise_log_close(reader);
    return code;
}

static void log_comes_back(void **state)
{
    (void)state;
    for (uint32_t records = 0; records < 14; records++) {
        for (int kind = 0; kind < 2; kind++) {
            assert_int_equal(write_log(kind, records), 0);
            assert_int_equal(files_in_folder(), 1);
            assert_int_equal(read_log(kind, records), 0);
        }
    }
    assert_int_equal(write_log(0, 20000), 0);
    assert_int_equal(read_log(0, 20000), 0);
}

/* The very bytes of docs/formats.md. */
static void log_has_the_documented_bytes(void **state)
{
    (void)state;
    static const unsigned char expected[] = {
        0x50, 0x54, 0x45, 0x53, 0x54, 0x4c, 0x4f, 0x47, 0x03, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0xc6, 0x1c, 0x2b, 0x88, 0x1d, 0x07, 0x48, 0x30,
        0x04, 0x03, 0x02, 0x01, 0x03, 0x00, 0x00, 0x00, 0xef, 0x4c, 0x67, 0xff,
        0xff, 0x5d, 0x1f, 0xda, 0x61, 0x62, 0x63, 0xff, 0xff, 0xff, 0xff, 0x08,
        0x00, 0x00, 0x00, 0x23, 0x5f, 0x61, 0x7a, 0x88, 0x5f, 0xd8, 0xe6, 0x01,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    struct poise_log *log;
    assert_int_equal(poise_log_create(path, MAGIC, VERSION, &log), 0);
    assert_int_equal(poise_log_append(log, 0x01020304, "abc", 3), 0);
    assert_int_equal(poise_log_commit(log), 0);
    unsigned char bytes[sizeof expected + 1];
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, bytes, sizeof bytes), sizeof expected);
    close(fd);
    assert_memory_equal(bytes, expected, sizeof expected);
}

static void log_abort_leaves_the_old_one(void **state)
{
    (void)state;
    struct poise_log *log;
    assert_int_equal(write_log(0, 5), 0);
    assert_int_equal(poise_log_create(path, MAGIC, VERSION, &log), 0);
    assert_int_equal(poise_log_append(log, 1, "new", 3), 0);
    poise_log_abort(log);
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(read_log(0, 5), 0);
    poise_log_abort(NULL);
}

static void log_refuses_what_it_cannot_hold(void **state)
{
    (void)state;
    struct poise_log *log;
    assert_int_equal(poise_log_create(path, MAGIC, VERSION, &log), 0);
    assert_int_equal(poise_log_append(log, UINT32_MAX, "x", 1), -EINVAL);
    assert_int_equal(poise_log_append(log, 1, "x", (size_t)1 << 32), -EINVAL);
    /* That was the caller's fault, not the log's: it goes on. */
    assert_int_equal(poise_log_append(log, 0, NULL, 0), 0);
    assert_int_equal(poise_log_commit(log), 0);
    assert_int_equal(read_log(0, 1), 0);

    char missing[4300];
    snprintf(missing, sizeof missing, "%s/none/log", folder);
    assert_int_equal(poise_log_create(missing, MAGIC, VERSION, &log), -ENOENT);
    struct poise_log_reader *reader;
    assert_int_equal(poise_log_open(missing, MAGIC, VERSION, &reader), -ENOENT);
    assert_string_equal(poise_error_last()->what, missing);
    assert_int_equal(poise_log_open(folder, MAGIC, VERSION, &reader), -EINVAL);
    poise_log_close(NULL);
}

static void log_of_another_kind_is_told_apart(void **state)
{
    (void)state;
    struct poise_log_reader *reader;
    assert_int_equal(write_log(0, 2), 0);
    assert_int_equal(poise_log_open(path, "OTHERLOG", VERSION, &reader),
                     -EPROTO);
    assert_string_equal(poise_error_last()->why,
                        "it is a log of another kind, PTESTLOG, not OTHERLOG");
    assert_int_equal(poise_log_open(path, MAGIC, VERSION - 1, &reader),
                     -EPROTO);
    assert_string_equal(poise_error_last()->why,
                        "it has version 3, this program reads up to 2");
    assert_int_equal(poise_log_open(path, MAGIC, VERSION + 1, &reader), 0);
    poise_log_close(reader);
}

/* ---- damage ------------------------------------------------------------- */

static unsigned char *load(size_t *len)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    unsigned char *bytes = malloc((size_t)st.st_size + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
    close(fd);
    *len = (size_t)st.st_size;
    return bytes;
}

static void store(const unsigned char *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    close(fd);
}

static void assert_damaged(const unsigned char *bytes, size_t len)
{
    struct poise_log_reader *reader = NULL;
    store(bytes, len);
    poise_error_clear();
    assert_int_equal(poise_log_open(path, MAGIC, VERSION, &reader), -EBADMSG);
    assert_null(reader);
    assert_string_equal(poise_error_last()->what, path);
    assert_non_null(strstr(poise_error_last()->why, " at byte "));
}

static void log_altered_at_any_byte_is_refused(void **state)
{
    (void)state;
    static const unsigned char flips[] = {0x01, 0x80, 0xff};
    assert_int_equal(write_log(0, 7), 0);
    size_t len;
    unsigned char *bytes = load(&len);
    assert_int_equal(len, 24 + 7 * 16 + 356 + 24);
    for (size_t at = 0; at < len; at++) {
        for (size_t i = 0; i < sizeof flips; i++) {
            bytes[at] ^= flips[i];
            assert_damaged(bytes, len);
            bytes[at] ^= flips[i];
        }
    }
    store(bytes, len);
    assert_int_equal(read_log(0, 7), 0);
    free(bytes);
}

static void log_truncated_anywhere_is_refused(void **state)
{
    (void)state;
    assert_int_equal(write_log(0, 7), 0);
    size_t len;
    unsigned char *bytes = load(&len);
    for (size_t at = 0; at < len; at++) {
        assert_damaged(bytes, at);
    }
    bytes[len] = 0;
    assert_damaged(bytes, len + 1);
    free(bytes);
}

/* Records that are fine by themselves, but not where they are. */
static void log_with_records_moved_is_refused(void **state)
{
    (void)state;
    assert_int_equal(write_log(0, 3), 0); /* records of 0, 1 and 7 bytes */
    size_t len;
    unsigned char *bytes = load(&len);
    unsigned char *changed = malloc(len + 100);
    assert_non_null(changed);
    /* The second left out. */
    memcpy(changed, bytes, 40);
    memcpy(changed + 40, bytes + 57, len - 57);
    assert_damaged(changed, len - 17);
    /* The first one twice. */
    memcpy(changed, bytes, 40);
    memcpy(changed + 40, bytes + 24, len - 24);
    assert_damaged(changed, len + 16);
    /* The first two exchanged. */
    memcpy(changed, bytes, len);
    memcpy(changed + 24, bytes + 40, 17);
    memcpy(changed + 41, bytes + 24, 16);
    assert_damaged(changed, len);
    /* The last one left out, the end record kept. */
    memcpy(changed, bytes, 57);
    memcpy(changed + 57, bytes + len - 24, 24);
    assert_damaged(changed, 57 + 24);
    /* Two logs, one after the other. */
    unsigned char *twice = malloc(2 * len);
    assert_non_null(twice);
    memcpy(twice, bytes, len);
    memcpy(twice + len, bytes, len);
    assert_damaged(twice, 2 * len);
    free(twice);
    free(changed);
    free(bytes);
}

/* It was whole when it was opened; then somebody writes to it. */
static void log_altered_while_read_is_noticed(void **state)
{
    (void)state;
    assert_int_equal(write_log(1, 7), 0);
    for (int truncated = 0; truncated < 2; truncated++) {
        struct poise_log_reader *reader;
        assert_int_equal(poise_log_open(path, MAGIC, VERSION, &reader), 0);
        int fd = open(path, O_WRONLY);
        assert_true(fd >= 0);
        if (truncated) {
            assert_int_equal(ftruncate(fd, 300000), 0);
        } else {
            assert_int_equal(pwrite(fd, "?", 1, 350000), 1);
        }
        close(fd);
        uint32_t type;
        const void *data;
        size_t len;
        int code;
        while ((code = poise_log_next(reader, &type, &data, &len)) == 1) {
        }
        assert_int_equal(code, -EBADMSG);
        poise_log_close(reader);
        assert_int_equal(write_log(1, 7), 0);
    }
}

/* ---- faults ------------------------------------------------------------- */

/* Which kind of records the log holds: their first lengths differ. */
static int kind_of_log(void)
{
    struct poise_log_reader *reader;
    uint32_t type;
    const void *data;
    size_t len;
    assert_int_equal(poise_log_open(path, MAGIC, VERSION, &reader), 0);
    assert_int_equal(poise_log_next(reader, &type, &data, &len), 1);
    poise_log_close(reader);
    return len == record_bytes(1, 0);
}

/* Make the k-th call of a kind fail while a log is written over another, for
 * every k that there is: the old one stays; in the `late` cases where only its
 * directory could not be synced, the new one is there whole. */
static void write_with_faults(enum poise_fault kind, int code, unsigned least,
                              int late)
{
    unsigned failures = 0;
    int replaced = 0;
    for (uint64_t k = 1;; k++) {
        assert_int_equal(write_log(0, 5), 0);
        poise_error_clear();
        poise_fault_arm(kind, k, code, false);
        int rc = write_log(1, 7);
        bool hit = poise_fault_calls(kind) >= k;
        poise_fault_arm(kind, 0, 0, false);
        assert_int_equal(rc, hit ? -code : 0);
        assert_int_equal(files_in_folder(), 1);
        if (!hit) {
            break;
        }
        failures++;
        assert_int_equal(poise_error_last()->code, code);
        /* The new one is in place only where nothing but the durability of
         * its directory's entry is missing. */
        int found = kind_of_log();
        assert_int_equal(read_log(found, found == 0 ? 5 : 7), 0);
        replaced += found;
    }
    assert_int_equal(replaced, late);
    assert_true(failures >= least);
    assert_int_equal(read_log(1, 7), 0);
}

static void log_write_faults_leave_all_or_nothing(void **state)
{
    (void)state;
    write_with_faults(POISE_FAULT_ALLOC, ENOMEM, 5, 1);
    write_with_faults(POISE_FAULT_OPEN, EMFILE, 2, 1);
    write_with_faults(POISE_FAULT_WRITE, ENOSPC, 6, 0);
    write_with_faults(POISE_FAULT_SYNC, EIO, 2, 1);
    write_with_faults(POISE_FAULT_RENAME, EXDEV, 1, 0);
}

static void log_read_faults_are_passed_on(void **state)
{
    (void)state;
    static const struct {
        enum poise_fault kind;
        int code;
        unsigned least;
    } kinds[] = {{POISE_FAULT_ALLOC, ENOMEM, 4},
                 {POISE_FAULT_OPEN, EMFILE, 1},
                 {POISE_FAULT_READ, EIO, 10}};
    assert_int_equal(write_log(1, 7), 0);
    for (size_t i = 0; i < 3; i++) {
        unsigned failures = 0;
        for (uint64_t k = 1;; k++) {
            poise_error_clear();
            poise_fault_arm(kinds[i].kind, k, kinds[i].code, false);
            int rc = read_log(1, 7);
            bool hit = poise_fault_calls(kinds[i].kind) >= k;
            poise_fault_arm(kinds[i].kind, 0, 0, false);
            assert_int_equal(rc, hit ? -kinds[i].code : 0);
            if (!hit) {
                break;
            }
            failures++;
            assert_int_equal(poise_error_last()->code, kinds[i].code);
        }
        assert_true(failures >= kinds[i].least);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_comes_back),
        cmocka_unit_test(log_has_the_documented_bytes),
        cmocka_unit_test(log_abort_leaves_the_old_one),
        cmocka_unit_test(log_refuses_what_it_cannot_hold),
        cmocka_unit_test(log_of_another_kind_is_told_apart),
        cmocka_unit_test(log_altered_at_any_byte_is_refused),
        cmocka_unit_test(log_truncated_anywhere_is_refused),
        cmocka_unit_test(log_with_records_moved_is_refused),
        cmocka_unit_test(log_altered_while_read_is_noticed),
        cmocka_unit_test(log_write_faults_leave_all_or_nothing),
        cmocka_unit_test(log_read_faults_are_passed_on),
    };
    return cmocka_run_group_tests_name("core_log", tests, make_folder,
                                       remove_folder);
}
