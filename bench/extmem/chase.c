/*
 * What 'poise listrank' is measured against: a walk through one list from its
 * first node to its last that leaves each node's place.
 *
 *   chase FILE             in memory
 *   chase FILE SECONDS     in the file, mapped: for about so long
 *
 * Prints JSON: nodes walked, seconds of the walk alone.
 */
#include <poise/core.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t first_node(const uint64_t *next, uint64_t count)
{
    unsigned char *follows = calloc(count / 8 + 1, 1);
    uint64_t first = 0;

    if (!follows) {
        return count;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (next[i] < count && next[i] != i) {
            follows[next[i] / 8] |= (unsigned char)(1u << next[i] % 8);
        }
    }
    while (first < count && (follows[first / 8] >> first % 8 & 1)) {
        first++;
    }
    free(follows);
    return first;
}

int main(int argc, char **argv)
{
    double limit = argc == 3 ? atof(argv[2]) : 0;
    int fd = argc >= 2 ? open(argv[1], O_RDONLY) : -1;
    uint64_t count, at = 0, walked = 0, begin, took;
    uint64_t *next, *place = NULL;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0) {
        fprintf(stderr, "usage: chase FILE [SECONDS]\n");
        return 2;
    }
    count = (uint64_t)st.st_size / 8;
    if (limit > 0) {
        next = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        madvise(next, (size_t)st.st_size, MADV_RANDOM);
    } else {
        next = malloc((size_t)st.st_size);
        place = malloc((size_t)st.st_size);
        if (!next || !place ||
            poise_file_read(fd, next, (size_t)st.st_size, argv[1]) < 0) {
            return 1;
        }
        memset(place, 0, (size_t)st.st_size);
        at = first_node(next, count);
    }
    if (next == MAP_FAILED || at == count) {
        fprintf(stderr, "chase: no memory, or no first node\n");
        return 1;
    }
    begin = poise_clock_ns();
    do {
        if (place) {
            place[at] = walked;
        }
        walked++;
        if (next[at] == at) {
            break;
        }
        at = next[at];
        /* The clock is looked at where a page is waited for anyway. */
    } while (limit == 0 || (double)(poise_clock_ns() - begin) / 1e9 < limit);
    took = poise_clock_ns() - begin;
    printf("{\"nodes\": %llu, \"seconds\": %.4f, \"ns_per_node\": %.1f, "
           "\"last\": %llu}\n",
           (unsigned long long)walked, (double)took / 1e9,
           (double)took / (double)walked, (unsigned long long)at);
    return 0;
}
