/*
 * Convex hull of random points: each rank finds the hull of its block, and
 * hulls are merged in a tree, until rank 0 has that of all. Plain MPI:
 *
 *     mpicc -O2 -o hull hull.c     mpirun -n 4 ./hull
 *     poise cc -O2 -o hull hull.c  poise run -V 64 --memory 256M ./hull 1000000
 *
 * usage: hull [--check] [N [SEED]]
 *
 * N points are drawn from SEED in a disk, with whole numbers as coordinates:
 * all is exact, and what is printed (twice the area, for one) does not depend
 * on the number of ranks. With --check rank 0 finds the hull alone, too, by
 * another algorithm, and the program ends with 1 where the two differ.
 *
 * A hull is found by A. Andrew's monotone chain (Information Processing
 * Letters 9, 1979): what is not on the hull of a part is not on that of all.
 * So log2(ranks) rounds in which half of those left send their hull, 16 bytes
 * a vertex; the hull of n points in a disk has about 3.4 n^(1/3) vertices, and
 * what is sent is little. Points that all are on their hull would all come to
 * rank 0. Counts are MPI's ints: a hull has less than 2^30 vertices.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RADIUS (INT64_C(1) << 20)

struct point {
    int64_t x, y;
};

static int rank, size;

static uint64_t mix(uint64_t x)
{
    x = (x + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void *get(size_t count, size_t bytes)
{
    void *data = malloc((count + 1) * bytes);
    if (data == NULL) {
        fprintf(stderr, "rank %d: no memory for %zu items\n", rank, count);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return data;
}

/* Point `at`: the first of those drawn for it that is in the disk. */
static struct point draw(uint64_t at, uint64_t seed)
{
    struct point p;
    uint64_t drawn = mix(at ^ mix(seed));
    do {
        drawn = mix(drawn);
        p.x = (int64_t)(drawn % (2 * RADIUS + 1)) - RADIUS;
        p.y = (int64_t)((drawn >> 32) % (2 * RADIUS + 1)) - RADIUS;
    } while (p.x * p.x + p.y * p.y > RADIUS * RADIUS);
    return p;
}

static int compare(const void *a, const void *b)
{
    const struct point *left = a, *right = b;
    int order = (left->x > right->x) - (left->x < right->x);
    return order != 0 ? order : (left->y > right->y) - (left->y < right->y);
}

/* Above 0 if a, b, c turn left, 0 if they are on a line. */
static int64_t turn(struct point a, struct point b, struct point c)
{
    return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
}

/*
 * Puts the hull of `count` points into them, counter-clockwise from the lowest
 * of the leftmost; returns the number of its vertices. None is there twice, or
 * on the line between two others.
 */
static size_t hull(struct point *points, size_t count)
{
    struct point *found = get(2 * count, sizeof *found);
    size_t top = 0, lower = 1;
    qsort(points, count, sizeof *points, compare);
    for (size_t i = 0; i < 2 * count; i++) {
        /* To the right below, then back to the left above. */
        struct point p = points[i < count ? i : 2 * count - 1 - i];
        lower = i == count ? top : lower;
        while (top > lower && turn(found[top - 2], found[top - 1], p) <= 0) {
            top--;
        }
        if (top == 0 || compare(&found[top - 1], &p) != 0) {
            found[top++] = p;
        }
    }
    top -= top > 1; /* where it began */
    memcpy(points, found, top * sizeof *points);
    free(found);
    return top;
}

/* Merges the hulls of all in rank 0; returns the number of vertices of mine. */
static size_t merge(struct point **points, size_t count)
{
    for (int step = 1; step < size; step *= 2) {
        if (rank & step) {
            MPI_Send(*points, (int)(2 * count), MPI_INT64_T, rank - step, 0,
                     MPI_COMM_WORLD);
            return 0;
        }
        if (rank + step < size) {
            MPI_Status status;
            int words;
            MPI_Probe(rank + step, 0, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_INT64_T, &words);
            struct point *both = get(count + (size_t)words / 2, sizeof *both);
            memcpy(both, *points, count * sizeof *both);
            MPI_Recv(both + count, words, MPI_INT64_T, rank + step, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            free(*points);
            *points = both;
            count = hull(both, count + (size_t)words / 2);
        }
    }
    return count;
}

/* Adds the vertex a, which b follows, to their count, twice the area, and a
 * checksum. */
static void note(uint64_t found[3], struct point a, struct point b)
{
    found[0]++;
    found[1] += (uint64_t)(a.x * b.y - a.y * b.x);
    found[2] += mix((uint64_t)a.x ^ mix((uint64_t)a.y));
}

/*
 * The same by one rank, which goes around (R. Jarvis, Information Processing
 * Letters 2, 1973): next is who has nobody to the right, the farthest of them.
 */
static void alone(uint64_t n, uint64_t seed, uint64_t found[3])
{
    struct point begin = {0, 0}, here, next, p;
    for (uint64_t i = 0; i < n; i++) {
        p = draw(i, seed);
        begin = i == 0 || compare(&p, &begin) < 0 ? p : begin;
    }
    memset(found, 0, 3 * sizeof *found);
    here = begin;
    for (int more = n > 0; more; here = next) {
        next = here;
        for (uint64_t i = 0; i < n; i++) {
            p = draw(i, seed);
            int64_t side = turn(here, next, p);
            /* On a line: is next between here and p? */
            int beyond = (next.x - here.x) * (p.x - next.x) +
                             (next.y - here.y) * (p.y - next.y) >
                         0;
            int is_new = compare(&next, &here) == 0;
            next = is_new || side < 0 || (side == 0 && beyond) ? p : next;
        }
        note(found, here, next);
        more = compare(&next, &begin) != 0;
    }
}

static int number(const char *text, uint64_t *value)
{
    char *end;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int check = argc > 1 && strcmp(argv[1], "--check") == 0, good = 1;
    argc -= check;
    argv += check;
    uint64_t n = 100000, seed = 1;
    if (argc > 3 || (argc > 1 && !number(argv[1], &n)) ||
        (argc > 2 && !number(argv[2], &seed))) {
        if (rank == 0) {
            fprintf(stderr, "usage: hull [--check] [N [SEED]]\n");
        }
        MPI_Finalize();
        return 2;
    }
    uint64_t block = n / (uint64_t)size + 1, first = block * (uint64_t)rank;
    size_t count = first >= n ? 0 : n - first < block ? n - first : block;
    struct point *points = get(count, sizeof *points);
    for (size_t i = 0; i < count; i++) {
        points[i] = draw(first + i, seed);
    }
    count = merge(&points, hull(points, count));
    if (rank == 0) {
        uint64_t mine[3] = {0, 0, 0}, right[3];
        for (size_t i = 0; i < count; i++) {
            note(mine, points[i], points[i + 1 < count ? i + 1 : 0]);
        }
        if (check) {
            alone(n, seed, right);
            good = memcmp(mine, right, sizeof right) == 0;
        }
        printf("%llu points, %llu on the hull, twice the area is %llu, "
               "checksum %016llx%s\n",
               (unsigned long long)n, (unsigned long long)mine[0],
               (unsigned long long)mine[1], (unsigned long long)mine[2],
               good ? "" : ": WRONG");
    }
    MPI_Bcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(points);
    MPI_Finalize();
    return good ? 0 : 1;
}
