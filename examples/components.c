/*
 * Connected components of a random graph: vertices and edges are cut into
 * blocks, one a rank. In each round every vertex that still has edges draws
 * head or tail, each tail joins a head next to it, and the edges go on between
 * the vertices that are left. Plain MPI:
 *
 *     mpicc -O2 -o components components.c
 *     mpirun -n 4 ./components
 *     poise cc -O2 -o components components.c
 *     poise run -V 64 --memory 256M ./components 4000000
 *
 * usage: components [--check] [N [SEED]]
 *
 * The graph has N vertices and 3/4 N edges, drawn from SEED. What is printed
 * does not depend on the number of ranks: a component is known by its smallest
 * vertex. With --check rank 0 finds the components alone, too, for which it
 * needs 8 N bytes, and the program ends with 1 where the two differ.
 *
 * Random mate (J. Reif: Optimal Parallel Algorithms for Integer Sorting and
 * Graph Connectivity, Harvard TR-08-85), with pointer jumping at the end: a
 * quarter of the vertices that have edges go in each round, in the mean, so
 * O(log N) rounds of three MPI_Alltoallv, with 16 bytes for each edge whose
 * end is a tail and 32 for each edge; edges within a component are dropped.
 * Nobody gathers what many edges ask of one vertex, so the rank that has the
 * last heads gets more than its share. Counts are MPI's ints: a rank sends and
 * gets less than 2^31 words at a time.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT64_MAX

static int rank, size;
static uint64_t block, first, vertices; /* of a rank; my first; mine */
static int *send, *recv, *send_at, *recv_at;

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

/* The ends of edge `at`. */
static void draw(uint64_t at, uint64_t n, uint64_t seed, uint64_t ends[2])
{
    ends[0] = mix(2 * at ^ mix(seed)) % n;
    ends[1] = mix((2 * at + 1) ^ mix(seed)) % n;
}

/*
 * Sends items of `width` words to the owners of the vertices that are their
 * first words; returns what comes, *got items. Item i goes out at where[i].
 */
static uint64_t *to_owners(const uint64_t *items, size_t count, size_t width,
                           size_t *where, size_t *got)
{
    uint64_t *out = get(count, width * sizeof *out);
    memset(send, 0, (size_t)size * sizeof *send);
    for (size_t i = 0; i < count; i++) {
        send[items[i * width] / block] += (int)width;
    }
    MPI_Alltoall(send, 1, MPI_INT, recv, 1, MPI_INT, MPI_COMM_WORLD);
    send_at[0] = recv_at[0] = 0;
    for (int i = 0; i < size; i++) {
        send_at[i + 1] = send_at[i] + send[i];
        recv_at[i + 1] = recv_at[i] + recv[i];
        send[i] = 0;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t owner = items[i * width] / block;
        where[i] = (size_t)(send_at[owner] + send[owner]) / width;
        send[owner] += (int)width;
        memcpy(out + where[i] * width, items + i * width, width * sizeof *out);
    }
    *got = (size_t)recv_at[size] / width;
    uint64_t *in = get(*got, width * sizeof *in);
    MPI_Alltoallv(out, send, send_at, MPI_UINT64_T, in, recv, recv_at,
                  MPI_UINT64_T, MPI_COMM_WORLD);
    free(out);
    return in;
}

/* Turns vertices into their labels, which owners have; NONE is themselves. */
static void ask(const uint64_t *labels, uint64_t *asked, size_t count)
{
    size_t got, *where = get(count, sizeof *where);
    uint64_t *in = to_owners(asked, count, 1, where, &got);
    uint64_t *back = get(count, sizeof *back);
    for (size_t i = 0; i < got; i++) {
        uint64_t label = labels[in[i] - first];
        in[i] = label == NONE ? in[i] : label;
    }
    MPI_Alltoallv(in, recv, recv_at, MPI_UINT64_T, back, send, send_at,
                  MPI_UINT64_T, MPI_COMM_WORLD);
    for (size_t i = 0; i < count; i++) {
        asked[i] = back[where[i]];
    }
    free(back);
    free(in);
    free(where);
}

/* Gives the owners of vertices lower labels: pairs of vertex and label. */
static void lower(uint64_t *labels, const uint64_t *pairs, size_t count)
{
    size_t got, *where = get(count, sizeof *where);
    uint64_t *in = to_owners(pairs, count, 2, where, &got);
    for (size_t i = 0; i < got; i++) {
        uint64_t *label = &labels[in[2 * i] - first];
        *label = in[2 * i + 1] < *label ? in[2 * i + 1] : *label;
    }
    free(in);
    free(where);
}

static int is_any(int mine)
{
    int any;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
    return any;
}

/* One round: tails join heads. Returns how many edges are left. */
static size_t contract(uint64_t *joins, uint64_t *edges, size_t count,
                       uint64_t coin)
{
    uint64_t *pairs = get(count, 2 * sizeof *pairs);
    size_t tails = 0, left = 0;
    for (size_t i = 0; i < 2 * count; i++) {
        if ((mix(edges[i] ^ coin) & 1) && !(mix(edges[i ^ 1] ^ coin) & 1)) {
            pairs[2 * tails] = edges[i];
            pairs[2 * tails++ + 1] = edges[i ^ 1];
        }
    }
    lower(joins, pairs, tails);
    free(pairs);
    ask(joins, edges, 2 * count);
    for (size_t i = 0; i < count; i++) {
        if (edges[2 * i] != edges[2 * i + 1]) {
            memmove(edges + 2 * left++, edges + 2 * i, 2 * sizeof *edges);
        }
    }
    return left;
}

/* Labels my vertices with the smallest ones of their components. */
static void components(uint64_t *labels, uint64_t *edges, size_t count)
{
    uint64_t *roots = get(vertices, sizeof *roots), coin = 0;
    uint64_t *pairs = get(vertices, 2 * sizeof *pairs);
    memset(roots, 0xff, vertices * sizeof *roots); /* NONE */
    while (is_any(count > 0)) {
        count = contract(roots, edges, count, mix(coin++));
    }
    for (uint64_t i = 0; i < vertices; i++) {
        roots[i] = roots[i] == NONE ? first + i : roots[i];
    }
    for (int moved = 1; is_any(moved);) {
        memcpy(labels, roots, vertices * sizeof *labels);
        ask(labels, roots, vertices);
        moved = memcmp(labels, roots, vertices * sizeof *labels) != 0;
    }
    for (uint64_t i = 0; i < vertices; i++) {
        pairs[2 * i] = roots[i];
        pairs[2 * i + 1] = first + i;
    }
    memset(labels, 0xff, vertices * sizeof *labels);
    lower(labels, pairs, vertices);
    ask(labels, roots, vertices);
    memcpy(labels, roots, vertices * sizeof *labels);
    free(pairs);
    free(roots);
}

/* Counts components and labels, these so that each is to be in its place. */
static void count_labels(const uint64_t *labels, uint64_t from, uint64_t count,
                         uint64_t found[2])
{
    found[0] = found[1] = 0;
    for (uint64_t i = 0; i < count; i++) {
        found[0] += labels[i] == from + i;
        found[1] += mix((from + i) ^ mix(labels[i]));
    }
}

/* The same by one rank, edge after edge: each set's smallest is its root. */
static void alone(uint64_t n, uint64_t edges, uint64_t seed, uint64_t found[2])
{
    uint64_t *parents = get(n, sizeof *parents), ends[2];
    for (uint64_t i = 0; i < n; i++) {
        parents[i] = i;
    }
    for (uint64_t i = 0; i < edges; i++) {
        draw(i, n, seed, ends);
        for (int k = 0; k < 2; k++) {
            while (parents[ends[k]] != ends[k]) {
                ends[k] = parents[ends[k]] = parents[parents[ends[k]]];
            }
        }
        parents[ends[ends[0] < ends[1]]] = ends[ends[0] > ends[1]];
    }
    for (uint64_t i = 0; i < n; i++) {
        parents[i] = parents[parents[i]];
    }
    count_labels(parents, 0, n, found);
    free(parents);
}

/* My part, of blocks of `each`, of n things that begin with *from. */
static uint64_t part(uint64_t n, uint64_t each, uint64_t *from)
{
    *from = each * (uint64_t)rank;
    return *from >= n ? 0 : n - *from < each ? n - *from : each;
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
            fprintf(stderr, "usage: components [--check] [N [SEED]]\n");
        }
        MPI_Finalize();
        return 2;
    }
    uint64_t all = n / 4 * 3 + n % 4, from, mine[2], checksum[2], right[2];
    send = get(4 * (size_t)size + 2, sizeof *send);
    recv = send + size;
    send_at = recv + size;
    recv_at = send_at + size + 1;
    block = n / (uint64_t)size + 1;
    vertices = part(n, block, &first);
    size_t count = part(all, all / (uint64_t)size + 1, &from);
    uint64_t *edges = get(count, 2 * sizeof *edges);
    uint64_t *labels = get(vertices, sizeof *labels);
    for (size_t i = 0; i < count; i++) {
        draw(from + i, n, seed, edges + 2 * i);
    }
    components(labels, edges, count);
    count_labels(labels, first, vertices, mine);
    MPI_Reduce(mine, checksum, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        if (check) {
            alone(n, all, seed, right);
            good = memcmp(checksum, right, sizeof right) == 0;
        }
        printf("%llu vertices, %llu edges: %llu components, checksum "
               "%016llx%s\n",
               (unsigned long long)n, (unsigned long long)all,
               (unsigned long long)checksum[0], (unsigned long long)checksum[1],
               good ? "" : ": WRONG");
    }
    MPI_Bcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(labels);
    free(edges);
    free(send);
    MPI_Finalize();
    return good ? 0 : 1;
}
