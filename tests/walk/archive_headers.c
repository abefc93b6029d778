/*
 * Headers of archives: what is written is read back, at the limits of all
 * fields; sums, sizes and maps that make no sense are refused.
 */
#include "../ranks.h"
#include "walk/archive/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void check_same(const struct tar_member *a, const struct tar_member *b)
{
    assert_int_equal(a->type, b->type);
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->link, b->link);
    assert_int_equal(a->meta.mode & 07777, b->meta.mode & 07777);
    assert_int_equal(a->meta.uid, b->meta.uid);
    assert_int_equal(a->meta.gid, b->meta.gid);
    assert_int_equal(a->meta.mtime.tv_sec, b->meta.mtime.tv_sec);
    assert_int_equal(a->meta.mtime.tv_nsec, b->meta.mtime.tv_nsec);
    assert_int_equal(a->meta.xattrs_len, b->meta.xattrs_len);
    if (a->meta.xattrs_len > 0) {
        assert_memory_equal(a->meta.xattrs, b->meta.xattrs, a->meta.xattrs_len);
    }
    if (a->type == '0') {
        assert_int_equal(a->meta.size, b->meta.size);
        assert_int_equal(a->data_size, b->data_size);
        assert_int_equal(a->sparse, b->sparse);
    }
    assert_int_equal(a->extent_count, b->extent_count);
    for (size_t i = 0; i < a->extent_count; i++) {
        assert_int_equal(a->extents[i].offset, b->extents[i].offset);
        assert_int_equal(a->extents[i].len, b->extents[i].len);
    }
}

/* A member there and back; its data are not there, so the archive is said to be
 * as long as they would be. */
static void there_and_back(const struct tar_member *m)
{
    struct poise_buf out = {0};
    struct tar_memory memory = {0};
    struct tar_member got;
    assert_int_equal(tar_encode(m, &out), 0);
    assert_int_equal(out.len % TAR_BLOCK, 0);
    struct tar_source source = {.fd = -1,
                                .data = out.data,
                                .size = out.len + tar_padded(m->data_size),
                                .path = "test"};
    assert_int_equal(tar_next(&source, 0, &got, &memory), 1);
    check_same(m, &got);
    assert_int_equal(got.data, out.len);
    assert_int_equal(got.end, source.size);
    /* One byte less, and it is cut short. */
    source.size -= tar_padded(m->data_size) ? tar_padded(m->data_size) : 1;
    if (m->data_size > 0 || source.size < out.len) {
        assert_int_equal(tar_next(&source, 0, &got, &memory), -EBADMSG);
    }
    tar_memory_free(&memory);
    poise_buf_free(&out);
}

static void test_limits(void **state)
{
    (void)state;
    static char deep[9000], name[300];
    struct tar_extent extents[500];
    struct poise_buf xattrs = {0};
    memset(deep, 'd', sizeof deep - 1);
    for (size_t i = 200; i < sizeof deep - 1; i += 200) {
        deep[i] = '/';
    }
    for (size_t i = 0; i < 500; i++) {
        extents[i] = (struct tar_extent){i << 33, 4096};
    }
    poise_buf_blob(&xattrs, "user.a=%", 8);
    poise_buf_blob(&xattrs, "\0\n=", 3);
    poise_buf_blob(&xattrs, "user.b", 6);
    poise_buf_blob(&xattrs, deep, sizeof deep);
    const struct tar_member members[] = {
        {.type = '0', .name = "a", .link = ""},
        {.type = '0',
         .name = deep,
         .link = "",
         .meta = {.mode = 07777,
                  .uid = UINT32_MAX - 1,
                  .gid = 1u << 31,
                  .size = UINT64_C(1) << 60,
                  .mtime = {.tv_sec = -1, .tv_nsec = 5}},
         .data_size = UINT64_C(1) << 60},
        {.type = '0',
         .name = "eight",
         .link = "",
         .meta = {.size = UINT64_C(8) << 30,
                  .uid = 07777777,
                  .gid = 010000000,
                  .mtime = {.tv_sec = 077777777777}},
         .data_size = UINT64_C(8) << 30},
        {.type = '0',
         .name = "just below",
         .link = "",
         .meta = {.size = 077777777777, .mtime = {.tv_sec = 0100000000000}},
         .data_size = 077777777777},
        {.type = '2',
         .name = "\xff\n=",
         .link = deep,
         .meta = {.mode = 0777,
                  .xattrs = xattrs.data,
                  .xattrs_len = xattrs.len,
                  .mtime = {.tv_sec = -10000000000, .tv_nsec = 999999999}}},
        {.type = '1', .name = deep, .link = deep},
        {.type = '5', .name = "dir", .link = "", .meta = {.mode = 01777}},
        {.type = '0',
         .name = deep,
         .link = "",
         .sparse = true,
         .meta = {.size = UINT64_C(500) << 33},
         .data_size = 500 * 4096,
         .extents = extents,
         .extent_count = 500},
        {.type = '0',
         .name = "hole",
         .link = "",
         .sparse = true,
         .meta = {.size = UINT64_C(1) << 50}},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        there_and_back(&members[i]);
    }
    /* Every length of name, on both sides of what ustar takes. */
    memset(name, 'n', sizeof name);
    for (size_t len = 1; len < sizeof name; len++) {
        for (size_t slash = 1; slash + 1 < len; slash += 37) {
            struct tar_member m = {.type = '5', .name = name, .link = ""};
            name[len] = '\0';
            name[slash] = '/';
            there_and_back(&m);
            name[slash] = name[len] = 'n';
        }
    }
    poise_buf_free(&xattrs);
}

/* Each bit of a header: the same is read, or an error is told. */
static void test_bits(void **state)
{
    (void)state;
    struct poise_buf out = {0};
    struct tar_memory memory = {0};
    struct tar_extent extents[] = {{0, 512}, {4096, 512}};
    struct tar_member m = {.type = '0',
                           .name = "sparse",
                           .link = "",
                           .sparse = true,
                           .meta = {.size = 8192},
                           .data_size = 1024,
                           .extents = extents,
                           .extent_count = 2};
    struct tar_member got;
    assert_int_equal(tar_encode(&m, &out), 0);
    for (size_t bit = 0; bit < 8 * out.len; bit++) {
        struct tar_source source = {
            .fd = -1, .data = out.data, .size = out.len + 1024, .path = "test"};
        out.data[bit / 8] ^= (char)(1 << bit % 8);
        int code = tar_next(&source, 0, &got, &memory);
        assert_true(code == 1 ||
                    (code == -EBADMSG && poise_error_last()->code == EBADMSG));
        if (code == 1) {
            assert_true(got.end <= tar_padded(source.size));
        }
        out.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    tar_memory_free(&memory);
    poise_buf_free(&out);
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *used;
    } names[] = {{"a", "a"},        {"/a//b/", "a/b"}, {"./a/./b", "a/b"},
                 {".", ""},         {"/", ""},         {"..", NULL},
                 {"a/../b", NULL},  {"a/..", NULL},    {"...", "..."},
                 {"../a", NULL},    {"", NULL},        {"a/..b", "a/..b"},
                 {"/../etc", NULL}, {".a", ".a"},      {"..a/b", "..a/b"}};
    struct poise_buf out = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int code = tar_place_name(names[i].name, &out);
        assert_int_equal(code, names[i].used ? 0 : -EINVAL);
        if (code == 0) {
            assert_string_equal(poise_buf_str(&out), names[i].used);
        }
    }
    poise_buf_free(&out);
}

/* Names of inodes are found again, and others are not, also when the table
 * grew; what is as a number the same on another device is another. */
static void test_inodes(void **state)
{
    enum { COUNT = 5000 };
    struct tar_names names;
    struct poise_buf name = {0};
    char text[24];
    unsigned part;
    (void)state;
    tar_names_init(&names);
    for (uint64_t i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, "name %llu", (unsigned long long)i * 7);
        assert_int_equal(tar_names_find(&names, i % 3, i / 3, &part, &name), 0);
        assert_int_equal(
            tar_names_add(&names, i % 3, i / 3, (unsigned)i % 5, text), 0);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, "name %llu", (unsigned long long)i * 7);
        assert_int_equal(tar_names_find(&names, i % 3, i / 3, &part, &name), 1);
        assert_string_equal(name.data, text);
        assert_int_equal(part, i % 5);
    }
    assert_int_equal(tar_names_find(&names, 3, 1, &part, &name), 0);
    /* A full disk is an error. */
    poise_fault_arm(POISE_FAULT_WRITE, 1, ENOSPC, false);
    assert_int_equal(tar_names_add(&names, 9, 9, 0, "x"), -ENOSPC);
    tar_names_free(&names);
    poise_buf_free(&name);
}

/* Blocks come back whole and in order. */
static void test_spool(void **state)
{
    struct tar_spool spool;
    struct poise_buf block = {0};
    uint64_t at = 0;
    (void)state;
    tar_spool_init(&spool);
    assert_int_equal(tar_spool_next(&spool, &at, &block), 0);
    for (int i = 1; i <= 100; i++) {
        for (int k = 0; k < i; k++) {
            poise_buf_u64(&block, (uint64_t)i);
        }
        assert_int_equal(tar_spool_put(&spool, &block), 0);
        assert_int_equal(block.len, 0);
        assert_int_equal(tar_spool_put(&spool, &block), 0); /* nothing */
    }
    assert_int_equal(spool.blocks, 100);
    for (int i = 1; i <= 100; i++) {
        assert_int_equal(tar_spool_next(&spool, &at, &block), 1);
        assert_int_equal(block.len, 8 * i);
        assert_int_equal(poise_get_u64(block.data + 8 * (i - 1)), i);
    }
    assert_int_equal(tar_spool_next(&spool, &at, &block), 0);
    tar_spool_free(&spool);
    poise_buf_free(&block);
}

/* What a part says that it is, and what says nothing. */
static void test_identity(void **state)
{
    struct poise_buf out = {0};
    struct tar_identity got, is = {0xfedcba9876543210, 3, 7};
    (void)state;
    assert_int_equal(tar_encode_identity(&is, &out), 0);
    assert_int_equal(out.len, 2 * TAR_BLOCK);
    struct tar_source source = {
        .fd = -1, .data = out.data, .size = out.len, .path = "test"};
    assert_int_equal(tar_read_identity(&source, &got), 0);
    assert_true(got.id == is.id && got.part == 3 && got.parts == 7);
    source.size = TAR_BLOCK;
    assert_int_equal(tar_read_identity(&source, &got), 0);
    assert_int_equal(got.id, 0);
    source.size = out.len;
    out.data[0] ^= 1; /* the sum is wrong */
    assert_int_equal(tar_read_identity(&source, &got), 0);
    assert_int_equal(got.id, 0);
    poise_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits), cmocka_unit_test(test_bits),
        cmocka_unit_test(test_names),  cmocka_unit_test(test_inodes),
        cmocka_unit_test(test_spool),  cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
