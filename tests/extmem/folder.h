/*
 * What the tests of room extmem share: their folder and the files in it.
 */
#ifndef POISE_TESTS_EXTMEM_FOLDER_H
#define POISE_TESTS_EXTMEM_FOLDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../temporary.h"

static char folder[TEMPORARY_BYTES]; /* of this run */
static char in_path[TEMPORARY_MORE], out_path[TEMPORARY_MORE],
    one_path[TEMPORARY_MORE], weight_path[TEMPORARY_MORE];

static inline unsigned files_in_folder(void)
{
    DIR *dir = opendir(folder);
    unsigned count = 0;

    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count - 2;
}

static inline void put_file(const char *path, const void *data, size_t len)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

/* All of a file, for free(); where it ends there is one byte more. */
static inline void *get_file(const char *path, size_t *len)
{
    struct stat st;
    char *data;
    int fd = open(path, O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    *len = (size_t)st.st_size;
    data = malloc(*len + 1);
    assert_int_equal(read(fd, data, *len), *len);
    close(fd);
    return data;
}

static inline void check_same_files(const char *a, const char *b)
{
    size_t a_len, b_len;
    char *x = get_file(a, &a_len), *y = get_file(b, &b_len);

    assert_int_equal(a_len, b_len);
    assert_memory_equal(x, y, a_len);
    free(x);
    free(y);
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(temporary_name(folder, "extmem"))) {
        return -1;
    }
    snprintf(in_path, sizeof in_path, "%s/in", folder);
    snprintf(out_path, sizeof out_path, "%s/out", folder);
    snprintf(one_path, sizeof one_path, "%s/one", folder);
    snprintf(weight_path, sizeof weight_path, "%s/weights", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(in_path);
    unlink(out_path);
    unlink(one_path);
    unlink(weight_path);
    /* Fails if anything else is left. */
    return rmdir(folder);
}

#endif
