/*
 * The loader's view of object files: damaged ones are refused, never read
 * beyond their ends, and failures on the way leave nothing behind. What copies
 * do is tested with whole programs (vrank_run.py).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vrank/loader/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../temporary.h"

/** A shared object that every machine of ours has. */
#define OBJECT "/lib/x86_64-linux-gnu/libdl.so.2"

static void *no_function(const char *name, void *arg)
{
    (void)arg;
    return strcmp(name, "malloc") == 0 ? arg : NULL;
}

static const char *const no_data[] = {NULL};
static const struct load_names names = {.data = no_data,
                                        .function = no_function};

static const struct load_program none;

static void test_good(void **state)
{
    (void)state;
    struct load_image image;
    assert_int_equal(load_image_open(OBJECT, &image), 0);
    assert_string_equal(image.soname, "libdl.so.2");
    assert_string_equal(image.name, "libdl.so.2");
    assert_true(image.symbol_count > 0);
    assert_int_equal(load_image_check(&image), 0);
    assert_int_equal(load_image_fix(&image, &none, &names), 0);
    assert_null(load_image_at(&image, UINT64_MAX - 3, 8));
    assert_null(load_image_at(&image, 0, SIZE_MAX));
    assert_string_equal(load_image_string(&image, UINT64_MAX), "");
    load_image_close(&image);
}

static size_t read_object(const char *path, char **out)
{
    struct stat status;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &status), 0);
    *out = malloc((size_t)status.st_size);
    assert_non_null(*out);
    assert_int_equal(read(fd, *out, (size_t)status.st_size), status.st_size);
    close(fd);
    return (size_t)status.st_size;
}

/** A library of the C library's that has .eh_frame, of some size. */
#define WITH_FRAMES "/lib/x86_64-linux-gnu/libm.so.6"

static void test_frame(void **state)
{
    (void)state;
    struct load_image image;
    struct load_frame frame = {0};
    assert_int_equal(load_image_open(WITH_FRAMES, &image), 0);
    load_image_frame(&image, &frame);
    assert_in_range(frame.bytes, 256, 64 << 10);
    assert_ptr_equal(frame.image, &image);
    assert_non_null(load_image_at(&image, frame.function, 16));
    assert_int_equal(load_image_rest(&image, UINT64_MAX), 0);
    load_image_close(&image);
}

/* Bytes changed at random, most of them where the tables are; and cut short
 * anywhere. */
static void test_damaged(void **state)
{
    (void)state;
    char path[TEMPORARY_BYTES], *good;
    size_t bytes = read_object(OBJECT, &good), opened = 0;
    char *bad = malloc(bytes);
    int fd = mkstemp(temporary_name(path, "load"));
    struct poise_rng rng;
    poise_rng_seed(&rng, 11);
    assert_non_null(bad);
    assert_true(fd >= 0);
    for (int round = 0; round < 1500; round++) {
        size_t len = bytes, reach = round % 2 == 0 ? 1024 : bytes;
        memcpy(bad, good, bytes);
        for (int i = 0; i < 1 + round % 7; i++) {
            bad[poise_rng_below(&rng, reach)] = (char)poise_rng_next(&rng);
        }
        if (round % 5 == 0) {
            len = poise_rng_below(&rng, bytes) + 1;
        }
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, bad, len, 0), len);
        struct load_image image;
        int code = load_image_open(path, &image);
        if (code == 0) {
            opened++;
            struct load_frame frame = {0};
            load_image_check(&image);
            load_image_frame(&image, &frame);
            assert_int_equal(load_image_fix(&image, &none, &names), 0);
            load_image_close(&image);
        } else {
            assert_int_equal(code, -ENOEXEC);
        }
    }
    assert_true(opened > 100 && opened < 1400);
    close(fd);
    unlink(path);
    free(bad);
    free(good);
}

/* Damaged tables of frames: where they lie, and what they say. */
static void test_damaged_frames(void **state)
{
    (void)state;
    struct load_image image;
    struct poise_rng rng;
    size_t found = 0, other = 0;
    struct load_frame right = {0};
    assert_int_equal(load_image_open(WITH_FRAMES, &image), 0);
    load_image_frame(&image, &right);
    char *good;
    size_t bytes = read_object(WITH_FRAMES, &good);
    const unsigned char *mapped = image.data;
    poise_rng_seed(&rng, 12);
    for (int round = 0; round < 40; round++) {
        /* A copy that ends where it ends: a sanitizer sees what is read behind
         * it. Half of the changes are where the table begins. */
        unsigned char *bad = malloc(bytes);
        assert_non_null(bad);
        memcpy(bad, good, bytes);
        for (int i = 0; i < image.segment_count; i++) {
            if (image.segments[i].p_type == PT_GNU_EH_FRAME) {
                size_t at = image.segments[i].p_offset;
                size_t reach = round % 2 == 0 ? 12 : bytes - at;
                for (int k = 0; k < (round % 2 == 0 ? 1 : 2000); k++) {
                    bad[at + poise_rng_below(&rng, reach)] =
                        (unsigned char)poise_rng_next(&rng);
                }
            }
        }
        struct load_frame frame = {0};
        image.data = bad;
        load_image_frame(&image, &frame);
        found += frame.bytes > 0;
        other += frame.bytes != right.bytes;
        free(bad);
    }
    image.data = mapped;
    assert_in_range(found, 5, 40);
    assert_in_range(other, 5, 40);
    load_image_close(&image);
    free(good);
}

static void test_faults(void **state)
{
    (void)state;
    static const enum poise_fault kinds[] = {POISE_FAULT_ALLOC,
                                             POISE_FAULT_OPEN};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (uint64_t k = 1;; k++) {
            struct load_image image = {.fd = -1};
            poise_fault_arm(kinds[i], k, ENOMEM, false);
            int code = load_image_open(OBJECT, &image);
            if (code == 0) {
                code = load_image_fix(&image, &none, &names);
                load_image_close(&image);
            }
            bool struck = poise_fault_calls(kinds[i]) >= k;
            poise_fault_arm(kinds[i], 0, 0, false);
            if (!struck) {
                assert_int_equal(code, 0);
                break;
            }
            assert_int_equal(code, -ENOMEM);
        }
    }
}

static void test_wrappers(void **state)
{
    (void)state;
    assert_non_null(wrap_find("getopt_long", false));
    assert_non_null(wrap_find("exit", false));
    assert_ptr_equal(wrap_find("_Exit", false), wrap_find("_exit", false));
    assert_null(wrap_find("malloc", false));
    assert_non_null(wrap_find("malloc", true));
    assert_null(wrap_find("", false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),    cmocka_unit_test(test_frame),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_damaged_frames),
        cmocka_unit_test(test_faults),  cmocka_unit_test(test_wrappers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
