/*
 * A folder with a cache in it, and segments of which one number says all; for
 * tests of the room dedup.
 */
#ifndef POISE_TESTS_DEDUP_FOLDER_H
#define POISE_TESTS_DEDUP_FOLDER_H

#include "dedup/cache/internal.h"

#include <poise/store.h>

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[4096]; /* global: the cache of this test */

static inline void empty_folder(void)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    while (dir && (entry = readdir(dir)) != NULL) {
        unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir) {
        closedir(dir);
    }
}

static inline int make_folder(void **state)
{
    const char *base = getenv("TMPDIR");

    (void)state;
    /* Every close waits for the disk, if there is one. */
    if (!base) {
        base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    }
    snprintf(folder, sizeof folder, "%s/poise-dedup-XXXXXX", base);
    return mkdtemp(folder) ? 0 : 1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    empty_folder();
    return rmdir(folder);
}

/* Segment i: what it is follows from i alone. */
static inline size_t segment(uint64_t i, unsigned char data[1024])
{
    struct poise_rng rng;
    size_t len;

    poise_rng_seed(&rng, i);
    len = 1 + poise_rng_below(&rng, 1000);
    for (size_t at = 0; at < len; at += 8) {
        uint64_t word = poise_rng_next(&rng);
        memcpy(data + at, &word, len - at < 8 ? len - at : 8);
    }
    memcpy(data, &i, 4);
    return len < 4 ? 4 : len;
}

static inline int add(struct poise_dedup_store *store, uint64_t i,
                      uint64_t *position)
{
    unsigned char data[1024];
    size_t len = segment(i, data);

    return poise_dedup_store_add(store, data, len, position);
}

/* Whether segment i is there; if so it is what it was. */
static inline bool has(struct poise_dedup_store *store, uint64_t i,
                       uint64_t *position)
{
    unsigned char data[1024];
    size_t len = segment(i, data);
    struct poise_dedup_stored stored;
    uint64_t at;

    if (poise_dedup_store_find(
            store, poise_dedup_store_fingerprint(store, data, len), &at) != 1 ||
        poise_dedup_store_read(store, at, &stored) != 1) {
        return false;
    }
    assert_int_equal(stored.len, len);
    assert_memory_equal(stored.data, data, len);
    if (position) {
        *position = at;
    }
    return true;
}

static inline struct poise_dedup_store *
open_store(const char *path, const struct poise_dedup_store_options *options)
{
    struct poise_dedup_store *store = NULL;

    assert_int_equal(poise_dedup_store_open(path, options, &store), 0);
    return store;
}

static inline void fill(struct poise_dedup_store *store, uint64_t from,
                        uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        uint64_t at;
        assert_int_equal(add(store, i, &at), 0);
    }
}

static inline uint64_t count_found(struct poise_dedup_store *store, uint64_t to)
{
    uint64_t found = 0;

    for (uint64_t i = 0; i < to; i++) {
        found += has(store, i, NULL);
    }
    return found;
}

#endif
