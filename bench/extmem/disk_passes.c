/*
 * What the disk allows a sort of two passes: the time to write a file's bytes
 * and to read them, past the page cache, transfers of 1 MiB, 8 at a time; twice
 * each, one after the other. With memory of 4 KiB pages and of huge ones.
 *
 *   disk_passes DIR BYTES ROUNDS [again]
 *
 * again: of a file whose blocks the disk has already, as of swapped contexts.
 *
 * Prints JSON: seconds of writing and reading once, medians, and MB/s of input
 * that two of each come to.
 */
#include <poise/core.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PIECE = 1 << 20, DEPTH = 8, MOST_ROUNDS = 99 };

static char *small_pages(size_t bytes)
{
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        return NULL;
    }
    madvise(at, bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (char)(i * 2654435761u >> 13);
    }
    return at;
}

/* Seconds; negative after an error. */
static double move(struct poise_disk *disk, bool is_write, char *memory,
                   uint64_t bytes)
{
    struct poise_disk_transfer transfers[DEPTH] = {{0}};
    uint64_t begin = poise_clock_ns(), at = 0;
    ssize_t n = 0;

    for (unsigned i = 0; at < bytes && n >= 0; i = (i + 1) % DEPTH) {
        n = poise_disk_wait(&transfers[i]);
        transfers[i] = (struct poise_disk_transfer){
            .data = memory + (size_t)i * PIECE,
            .len = PIECE,
            .offset = at,
            .is_write = is_write,
        };
        poise_disk_start(disk, &transfers[i]);
        at += PIECE;
    }
    for (unsigned i = 0; i < DEPTH; i++) {
        ssize_t one = poise_disk_wait(&transfers[i]);

        n = n < 0 ? n : one;
    }
    return n < 0 ? -1 : (double)(poise_clock_ns() - begin) / 1e9;
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static int measure(const char *dir, const char *name, char *memory,
                   uint64_t bytes, int rounds, bool is_again)
{
    double writing[MOST_ROUNDS], reading[MOST_ROUNDS], all;

    for (int i = 0; i < rounds; i++) {
        struct poise_disk *disk;

        if (poise_disk_scratch(dir, NULL, &disk) < 0) {
            return -1;
        }
        if (is_again && move(disk, true, memory, bytes) < 0) {
            poise_disk_close(disk);
            return -1;
        }
        writing[i] = move(disk, true, memory, bytes);
        reading[i] = move(disk, false, memory, bytes);
        if (!poise_disk_is_direct(disk)) {
            fprintf(stderr, "disk_passes: not past the page cache\n");
        }
        poise_disk_close(disk);
        if (writing[i] < 0 || reading[i] < 0) {
            return -1;
        }
    }
    qsort(writing, (size_t)rounds, sizeof *writing, by_size);
    qsort(reading, (size_t)rounds, sizeof *reading, by_size);
    all = 2 * (writing[rounds / 2] + reading[rounds / 2]);
    printf("\"%s\": {\"write_seconds\": %.4f, \"read_seconds\": %.4f, "
           "\"two_pass_seconds\": %.4f, \"mb_per_s\": %.1f}",
           name, writing[rounds / 2], reading[rounds / 2], all,
           (double)bytes / all / 1e6);
    return 0;
}

int main(int argc, char **argv)
{
    bool is_again = argc == 5 && strcmp(argv[4], "again") == 0;
    bool is_good = argc == 4 || is_again;
    uint64_t bytes = is_good ? strtoull(argv[2], NULL, 10) : 0;
    int rounds = is_good ? atoi(argv[3]) : 0;
    char *small = small_pages((size_t)DEPTH * PIECE);
    char *huge = poise_huge_alloc((size_t)DEPTH * PIECE);

    if (bytes == 0 || rounds < 1 || rounds > MOST_ROUNDS || !small || !huge) {
        fprintf(stderr, "usage: disk_passes DIR BYTES ROUNDS [again]\n");
        return 2;
    }
    for (size_t i = 0; i < (size_t)DEPTH * PIECE; i++) {
        huge[i] = small[i];
    }
    printf("{");
    if (measure(argv[1], "small_pages", small, bytes, rounds, is_again) < 0) {
        return 1;
    }
    printf(",\n ");
    if (measure(argv[1], "huge_pages", huge, bytes, rounds, is_again) < 0) {
        return 1;
    }
    printf("}\n");
    return 0;
}
