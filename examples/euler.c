/*
 * Depths of nodes and sizes of subtrees of a random tree, by its Euler tour:
 * each node has an arc down to it and one up from it, every arc finds the one
 * that is next on the tour, and pointer doubling tells how far each is from
 * the end. Nodes are cut into blocks, one a rank. Plain MPI:
 *
 *     mpicc -O2 -o euler euler.c     mpirun -n 4 ./euler
 *     poise cc -O2 -o euler euler.c  poise run -V 64 --memory 256M ./euler
 *
 * usage: euler [--check] [N [SEED]]
 *
 * Of the N nodes 0 is the root; the parent of each other is drawn from SEED
 * among those with a lower number. What is printed does not depend on the
 * number of ranks. With --check rank 0 goes through the tree alone, too, for
 * which it needs 16 N bytes, and the program ends with 1 where the two differ.
 *
 * Euler tours are of R. Tarjan and U. Vishkin (An Efficient Parallel
 * Biconnectivity Algorithm, SIAM J. Comput. 14, 1985); doubling is the pointer
 * jumping of PEMS, 5.4, algorithm 5.3, without pivots: two MPI_Alltoallv to
 * find the tour, with 16 bytes a node each, and two in each of log2(2 N)
 * rounds, with 8 and 24 bytes for each arc that has not come to the end. An
 * arc is asked by one other at most, so no rank is asked too often. Counts are
 * MPI's ints: a rank has less than 2^31 / 6 nodes.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT64_MAX

/* The arcs of node v are 2 v, down to it, and 2 v + 1, up from it. */
struct arc {
    uint64_t next;  /* or NONE */
    uint64_t count; /* of arcs from here on, before next */
    uint64_t above; /* how many of them go down less those that go up */
};

static int rank, size;
static uint64_t block, first, nodes; /* of a rank; my first; mine */
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

/* The parent of a node that is not the root. */
static uint64_t draw(uint64_t node, uint64_t seed)
{
    return mix(node ^ mix(seed)) % node;
}

/*
 * Sends items of `width` words to the owners of what their first words name,
 * of which each rank has `each`; returns what comes, *got items. Item i goes
 * out at where[i].
 */
static uint64_t *to_owners(const uint64_t *items, size_t count, size_t width,
                           uint64_t each, size_t *where, size_t *got)
{
    uint64_t *out = get(count, width * sizeof *out);
    memset(send, 0, (size_t)size * sizeof *send);
    for (size_t i = 0; i < count; i++) {
        send[items[i * width] / each] += (int)width;
    }
    MPI_Alltoall(send, 1, MPI_INT, recv, 1, MPI_INT, MPI_COMM_WORLD);
    send_at[0] = recv_at[0] = 0;
    for (int i = 0; i < size; i++) {
        send_at[i + 1] = send_at[i] + send[i];
        recv_at[i + 1] = recv_at[i] + recv[i];
        send[i] = 0;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t owner = items[i * width] / each;
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

static int compare(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    int at = left[0] == right[0]; /* by parent, then child */
    return (left[at] > right[at]) - (left[at] < right[at]);
}

/* Finds what is next to each of my arcs. */
static void tour(struct arc *arcs, uint64_t seed)
{
    uint64_t *pairs = get(nodes, 2 * sizeof *pairs), *in;
    size_t count = 0, got, *where = get(nodes, sizeof *where);
    for (uint64_t i = 0; i < nodes; i++) {
        arcs[2 * i] = (struct arc){2 * (first + i) + 1, 1, 1};
        arcs[2 * i + 1] = (struct arc){NONE, 1, (uint64_t)-1};
        if (first + i > 0) {
            pairs[2 * count] = draw(first + i, seed);
            pairs[2 * count++ + 1] = first + i;
        }
    }
    in = to_owners(pairs, count, 2, block, where, &got);
    free(pairs);
    free(where);
    qsort(in, got, 2 * sizeof *in, compare);
    /* Down to a node is followed by down to its first child; up from a child
     * by down to the one after it, or up from their parent. */
    pairs = get(got, 2 * sizeof *pairs);
    where = get(got, sizeof *where);
    for (size_t i = 0; i < got; i++) {
        uint64_t *pair = in + 2 * i;
        if (i == 0 || pair[-2] != pair[0]) {
            arcs[2 * (pair[0] - first)].next = 2 * pair[1];
        }
        int last = i + 1 == got || pair[2] != pair[0];
        pairs[2 * i] = pair[1];
        pairs[2 * i + 1] = last ? 2 * pair[0] + 1 : 2 * pair[3];
    }
    free(in);
    in = to_owners(pairs, got, 2, block, where, &count);
    for (size_t i = 0; i < count; i++) {
        arcs[2 * (in[2 * i] - first) + 1].next = in[2 * i + 1];
    }
    free(in);
    free(where);
    free(pairs);
}

/* Every arc goes on to the next of its next; returns if any has one. */
static int jump(struct arc *arcs)
{
    uint64_t *asked = get(2 * nodes, sizeof *asked);
    size_t count = 0, got, *where = get(2 * nodes, sizeof *where);
    for (uint64_t i = 0; i < 2 * nodes; i++) {
        if (arcs[i].next != NONE) {
            asked[count++] = arcs[i].next;
        }
    }
    uint64_t *in = to_owners(asked, count, 1, 2 * block, where, &got);
    struct arc *out = get(got, sizeof *out), *back = get(count, sizeof *back);
    for (size_t i = 0; i < got; i++) {
        out[i] = arcs[in[i] - 2 * first];
    }
    for (int i = 0; i < size; i++) {
        send[i] *= 3;
        recv[i] *= 3;
        send_at[i] *= 3;
        recv_at[i] *= 3;
    }
    MPI_Alltoallv(out, recv, recv_at, MPI_UINT64_T, back, send, send_at,
                  MPI_UINT64_T, MPI_COMM_WORLD);
    count = 0;
    for (uint64_t i = 0; i < 2 * nodes; i++) {
        if (arcs[i].next != NONE) {
            const struct arc *next = &back[where[count++]];
            arcs[i].next = next->next;
            arcs[i].count += next->count;
            arcs[i].above += next->above;
        }
    }
    free(back);
    free(out);
    free(in);
    free(where);
    free(asked);
    int mine = count > 0, any;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
    return any;
}

/* Adds a node to the sum of depths, and to a checksum of all and places. */
static void note(uint64_t found[2], uint64_t node, uint64_t depth,
                 uint64_t subtree)
{
    found[0] += depth;
    found[1] += mix(node ^ mix(depth ^ mix(subtree)));
}

/* The same by one rank, node after node: parents have lower numbers. */
static void alone(uint64_t n, uint64_t seed, uint64_t found[2])
{
    uint64_t *depths = get(n, sizeof *depths);
    uint64_t *subtrees = get(n, sizeof *subtrees);
    for (uint64_t i = 0; i < n; i++) {
        depths[i] = i == 0 ? 0 : depths[draw(i, seed)] + 1;
        subtrees[i] = 1;
    }
    found[0] = found[1] = 0;
    for (uint64_t i = n; i-- > 0;) {
        if (i > 0) {
            subtrees[draw(i, seed)] += subtrees[i];
        }
        note(found, i, depths[i], subtrees[i]);
    }
    free(subtrees);
    free(depths);
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
            fprintf(stderr, "usage: euler [--check] [N [SEED]]\n");
        }
        MPI_Finalize();
        return 2;
    }
    uint64_t mine[2] = {0, 0}, checksum[2], right[2];
    send = get(4 * (size_t)size + 2, sizeof *send);
    recv = send + size;
    send_at = recv + size;
    recv_at = send_at + size + 1;
    block = n / (uint64_t)size + 1;
    first = block * (uint64_t)rank;
    nodes = first >= n ? 0 : n - first < block ? n - first : block;
    struct arc *arcs = get(2 * nodes, sizeof *arcs);
    tour(arcs, seed);
    while (jump(arcs)) {
    }
    /* What is open where a node begins is what the rest closes. */
    for (uint64_t i = 0; i < nodes; i++) {
        const struct arc *down = &arcs[2 * i], *up = down + 1;
        note(mine, first + i, -down->above, (down->count - up->count + 1) / 2);
    }
    MPI_Reduce(mine, checksum, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        if (check) {
            alone(n, seed, right);
            good = memcmp(checksum, right, sizeof right) == 0;
        }
        printf("%llu nodes, depths of %llu in all, checksum %016llx%s\n",
               (unsigned long long)n, (unsigned long long)checksum[0],
               (unsigned long long)checksum[1], good ? "" : ": WRONG");
    }
    MPI_Bcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(arcs);
    free(send);
    MPI_Finalize();
    return good ? 0 : 1;
}
