/*
 * An MPI program that knows nothing of Poise and does what few programs do. It
 * prints what it sees, which must be the same with a preload and without.
 *
 * usage: mpi_guest wrong|threads|attributes|dead RANK|sub|ends|
 *                  calls [BYTES [serial]]|large
 *   wrong       calls with arguments that are wrong: which error classes there
 *               are, and how often the program's error handler was called
 *   threads     twelve threads, each with a communicator of its own
 *   attributes  how often attributes are copied and deleted
 *   dead        RANK kills itself while the others wait for it
 *   sub         allreduces on parts of the world
 *   ends        communicators that are freed in another order on each rank, by
 *               several threads
 *   calls       forty allreduces on one communicator; serial: says that no
 * other thread calls MPI large       more than 2 GiB in one message, in plain
 * and derived types
 */
#include <mpi.h>

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 12, MOST = 64 };

static int rank, size;

static void fail(const char *what)
{
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ---- wrong arguments ---------------------------------------------------- */

static int handled;

static void on_error(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    handled++;
}

static void report(const char *what, int code)
{
    static const struct {
        int class;
        const char *name;
    } names[] = {{MPI_SUCCESS, "success"},
                 {MPI_ERR_ROOT, "root"},
                 {MPI_ERR_COUNT, "count"},
                 {MPI_ERR_TYPE, "type"},
                 {MPI_ERR_OP, "op"},
                 {MPI_ERR_COMM, "comm"},
                 {MPI_ERR_BUFFER, "buffer"},
                 {MPI_ERR_ARG, "arg"},
                 {MPI_ERR_TRUNCATE, "truncate"},
                 {MPI_ERR_OTHER, "other"}};
    const char *name = "another";
    int class = 0;
    MPI_Error_class(code, &class);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].class == class) {
            name = names[i].name;
        }
    }
    for (int r = 0; r < size; r++) {
        if (r == rank) {
            printf("%d: %s: %s, handled %d times\n", rank, what, name, handled);
            fflush(stdout);
        }
    }
    handled = 0;
}

#define TRY(call) report(#call, call)

static void wrong_for_all(MPI_Comm comm, MPI_Datatype raw)
{
    static int in[MOST], out[MOST];
    int none[MOST] = {0}, ones[MOST], bad[MOST];
    MPI_Datatype nothing = MPI_DATATYPE_NULL, number = MPI_INT;
    for (int i = 0; i < MOST; i++) {
        ones[i] = 1;
        bad[i] = -1;
    }
    TRY(MPI_Bcast(in, 1, number, size, comm));
    TRY(MPI_Bcast(in, 1, number, -1, comm));
    TRY(MPI_Bcast(in, -1, number, 0, comm));
    TRY(MPI_Bcast(in, 1, nothing, 0, comm));
    TRY(MPI_Bcast(in, 1, raw, 0, comm));
    TRY(MPI_Bcast(in, 1, number, 0, MPI_COMM_NULL));
    TRY(MPI_Barrier(MPI_COMM_NULL));
    TRY(MPI_Allreduce(in, out, 1, nothing, MPI_SUM, comm));
    TRY(MPI_Allreduce(in, out, 1, number, MPI_OP_NULL, comm));
    TRY(MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_BAND, comm));
    TRY(MPI_Allreduce(in, out, 1, MPI_BYTE, MPI_SUM, comm));
    TRY(MPI_Allreduce(in, in, 4, number, MPI_SUM, comm));
    TRY(MPI_Allreduce(in, MPI_IN_PLACE, 1, number, MPI_SUM, comm));
    TRY(MPI_Allreduce(in, out, 1, number, MPI_SUM, MPI_COMM_NULL));
    TRY(MPI_Reduce(in, out, 1, number, MPI_SUM, size, comm));
    TRY(MPI_Reduce(in, out, 1, number, MPI_OP_NULL, 0, comm));
    TRY(MPI_Reduce(in, out, 1, raw, MPI_SUM, 0, comm));
    TRY(MPI_Gather(in, 1, number, out, 1, number, -2, comm));
    TRY(MPI_Gather(in, -1, number, out, -1, number, 0, comm));
    TRY(MPI_Gather(in, 1, nothing, out, 1, nothing, 0, comm));
    TRY(MPI_Gather(in, 1, raw, out, 1, raw, 0, comm));
    TRY(MPI_Scatter(in, 1, number, out, 1, number, size + 7, comm));
    TRY(MPI_Scatter(in, -1, number, out, -1, number, 0, comm));
    TRY(MPI_Scatter(in, 1, nothing, out, 1, nothing, 0, comm));
    TRY(MPI_Allgather(in, -1, number, out, -1, number, comm));
    TRY(MPI_Allgather(in, 1, nothing, out, 1, number, comm));
    TRY(MPI_Allgather(in, 1, number, out, 1, nothing, comm));
    TRY(MPI_Allgather(in, 1, raw, out, 1, raw, comm));
    TRY(MPI_Allgather(in, 1, number, MPI_IN_PLACE, 1, number, comm));
    TRY(MPI_Alltoall(in, -1, number, out, -1, number, comm));
    TRY(MPI_Alltoall(in, 1, nothing, out, 1, nothing, comm));
    TRY(MPI_Alltoall(in, 1, raw, out, 1, raw, comm));
    TRY(MPI_Alltoallv(in, bad, none, number, out, bad, none, number, comm));
    TRY(MPI_Alltoallv(in, ones, none, nothing, out, ones, none, nothing, comm));
    TRY(MPI_Alltoallv(in, ones, none, raw, out, ones, none, raw, comm));
#if defined(OPEN_MPI)
    TRY(MPI_Allreduce(in, out, -1, number, MPI_SUM, comm));
    TRY(MPI_Reduce(in, out, -5, number, MPI_SUM, 0, comm));
    TRY(MPI_Bcast(MPI_IN_PLACE, 1, number, 0, comm));
    TRY(MPI_Alltoall(in, 2, number, out, 1, number, comm));
    TRY(MPI_Alltoallv(in, NULL, none, number, out, ones, none, number, comm));
#else
    TRY(MPI_Bcast(NULL, 1, number, 0, comm));
    TRY(MPI_Allreduce(NULL, out, 1, number, MPI_SUM, comm));
    TRY(MPI_Allreduce(in, NULL, 1, number, MPI_SUM, comm));
    TRY(MPI_Gather(NULL, 1, number, NULL, 1, number, 0, comm));
    TRY(MPI_Allgather(&out[rank], 1, number, out, 1, number, comm));
    TRY(MPI_Alltoall(in, 1, number, in, 1, number, comm));
    TRY(MPI_Alltoallv(in, ones, none, number, in, ones, none, number, comm));
#endif
}

/* Right for some ranks, which need not wait for the others. */
static void wrong_for_one(MPI_Comm comm)
{
    int in[MOST] = {0}, out[MOST];
    if (rank == 0) {
        TRY(MPI_Gather(in, 1, MPI_INT, out, -1, MPI_INT, 0, comm));
        TRY(MPI_Gather(in, 1, MPI_INT, out, 1, MPI_DATATYPE_NULL, 0, comm));
        TRY(MPI_Gather(in, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, 0, comm));
#if !defined(OPEN_MPI)
        TRY(MPI_Scatter(in, -1, MPI_INT, out, 1, MPI_INT, 0, comm));
#endif
        TRY(MPI_Scatter(MPI_IN_PLACE, 1, MPI_INT, out, 1, MPI_INT, 0, comm));
        TRY(MPI_Reduce(in, in, 1, MPI_INT, MPI_SUM, 0, comm));
    }
    MPI_Comm gone = MPI_COMM_NULL;
    TRY(MPI_Comm_free(&gone));
    if (rank == 0) {
        MPI_Comm world = MPI_COMM_WORLD;
        TRY(MPI_Comm_free(&world));
    }
}

static void wrong(void)
{
    MPI_Errhandler handler;
    MPI_Datatype raw;
    MPI_Comm comm;
    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Type_contiguous(3, MPI_INT, &raw);
    wrong_for_all(comm, raw);
    wrong_for_one(comm);
    int count = rank == 0 ? 4 : 1, few[MOST] = {0};
    TRY(MPI_Bcast(few, count, MPI_INT, 0, comm));
    /* What is right works none the less. */
    int sum = 0;
    MPI_Allreduce(&size, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Bcast(NULL, 0, MPI_INT, 0, comm);
    MPI_Barrier(comm);
    if (sum != size * size || handled != 0) {
        fail("what is right does not work any more");
    }
    MPI_Errhandler now;
    MPI_Comm_get_errhandler(comm, &now);
    if (now != handler) {
        fail("the error handler is another");
    }
    MPI_Errhandler_free(&now);
    MPI_Type_free(&raw);
    MPI_Comm_free(&comm);
    MPI_Errhandler_free(&handler);
}

/* ---- threads ------------------------------------------------------------ */

struct job {
    pthread_t thread;
    int number;
    MPI_Comm comm;
    long sum;
};

static void *work(void *arg)
{
    struct job *job = arg;
    /* In another order on each rank. */
    usleep((useconds_t)(job->number * (rank + 3) % THREADS * 500));
    for (int i = 0; i < 20; i++) {
        long mine = job->number + i, all = 0;
        double least = -1, here = rank;
        MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, job->comm);
        MPI_Allreduce(&here, &least, 1, MPI_DOUBLE, MPI_MIN, job->comm);
        MPI_Bcast(&mine, 1, MPI_LONG, i % size, job->comm);
        MPI_Barrier(job->comm);
        job->sum += all + (long)least;
    }
    return NULL;
}

static void threads(void)
{
    struct job jobs[THREADS];
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){.number = i};
        MPI_Comm_dup(MPI_COMM_WORLD, &jobs[i].comm);
    }
    for (int i = 0; i < THREADS; i++) {
        int at = rank % 2 ? THREADS - 1 - i : i;
        if (pthread_create(&jobs[at].thread, NULL, work, &jobs[at]) != 0) {
            fail("there is no thread more");
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(jobs[i].thread, NULL);
        if (jobs[i].sum != size * (20L * i + 190)) {
            fail("a sum is wrong");
        }
    }
    /* Some are freed, the rest is MPI_Finalize's. */
    for (int i = 0; i < THREADS; i += 3) {
        MPI_Comm_free(&jobs[i].comm);
    }
}

/* ---- attributes --------------------------------------------------------- */

static int copies, deletes;

static int on_copy(MPI_Comm comm, int key, void *extra, void *in, void *out,
                   int *flag)
{
    (void)comm;
    (void)key;
    (void)extra;
    *(void **)out = in;
    *flag = 1;
    copies++;
    return MPI_SUCCESS;
}

static int on_delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static void attributes(void)
{
    MPI_Comm comm;
    int key, sum;
    MPI_Comm_create_keyval(on_copy, on_delete, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, &key);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_free(&comm);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
    MPI_Comm_free_keyval(&key);
    printf("%d: %d copies, %d deletes\n", rank, copies, deletes);
}

/* ---- the rest ----------------------------------------------------------- */

static void dead(int who)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == who) {
        kill(getpid(), SIGKILL);
    }
    /* The second call says why, too. Some end at once, as most programs do:
     * those that have not noticed yet must not take them for the cause. */
    for (int i = 0; i < (rank % 2 == 0 ? 1 : 2); i++) {
        if (MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS) {
            fail("a barrier without one of its ranks");
        }
    }
    _exit(7);
}

static void sub(void)
{
    MPI_Comm half, same;
    int sum[3] = {0};
    MPI_Allreduce(&rank, &sum[0], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, -rank, &half);
    MPI_Allreduce(&rank, &sum[1], 1, MPI_INT, MPI_SUM, half);
    MPI_Comm_dup(MPI_COMM_WORLD, &same);
    MPI_Allreduce(&rank, &sum[2], 1, MPI_INT, MPI_SUM, same);
    printf("%d: %d, %d, %d\n", rank, sum[0], sum[1], sum[2]);
}

/* ---- ends ---------------------------------------------------------------- */

enum { ENDS = 24, ENDERS = 3 };

static MPI_Comm ends[ENDS];

/* Every third communicator from the first, forwards or backwards: a rank frees
 * what another one still uses, and ends with what that began with. */
static void *end_each(void *arg)
{
    int first = *(int *)arg, count = ENDS / ENDERS;
    long all = 0, one = 1;
    for (int i = 0; i < count; i++) {
        for (int call = 0; call < 6; call++) {
            MPI_Allreduce(&one, &all, 1, MPI_LONG, MPI_SUM,
                          ends[first + i * ENDERS]);
            if (all != size) {
                fail("a sum on one of many communicators is wrong");
            }
        }
    }
    for (int i = 0; i < count; i++) {
        int at = rank % 2 ? count - 1 - i : i;
        MPI_Comm_free(&ends[first + at * ENDERS]);
    }
    return NULL;
}

static void end_all(void)
{
    pthread_t threads[ENDERS];
    int firsts[ENDERS];
    for (int i = 0; i < ENDS; i++) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, i % 2 ? -rank : rank, &ends[i]);
    }
    /* Made before the threads: see docs/coll.md. */
    for (int call = 0; call < 4; call++) {
        for (int i = 0; i < ENDS; i++) {
            MPI_Barrier(ends[i]);
        }
    }
    for (int i = 0; i < ENDERS; i++) {
        firsts[i] = i;
        if (pthread_create(&threads[i], NULL, end_each, &firsts[i]) != 0) {
            fail("there is no thread more");
        }
    }
    for (int i = 0; i < ENDERS; i++) {
        pthread_join(threads[i], NULL);
    }
    /* Handles of freed ones may come again. */
    for (int i = 0; i < ENDS; i++) {
        MPI_Comm comm;
        int sum = 0, one = 1;
        MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &comm);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        if (sum != 2) {
            fail("a communicator is taken for another");
        }
        MPI_Comm_free(&comm);
    }
}

static void calls(size_t bytes)
{
    double *in = calloc(bytes, 1), *out = calloc(bytes, 1);
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comm);
    if (!in || !out) {
        fail("no memory");
    }
    for (int i = 0; i < 40; i++) {
        in[0] = rank + i;
        MPI_Allreduce(in, out, (int)(bytes / 8), MPI_DOUBLE, MPI_SUM, comm);
        if (out[0] != size * (size - 1) / 2 + size * i) {
            fail("one of many sums is wrong");
        }
    }
    MPI_Comm_free(&comm);
    free(in);
    free(out);
}

/* ---- more than an int can count ----------------------------------------- */

enum { BLOCK = 1 << 20, BLOCKS = 300 }; /* of doubles: 2.4 GB */

static double *room(size_t count)
{
    double *made = malloc(count * sizeof *made);
    if (!made) {
        fail("no memory");
    }
    return made;
}

static void check_blocks(const double *all, const char *what)
{
    for (size_t i = 0; i < (size_t)BLOCK * BLOCKS; i += 1021) {
        if (all[i] != (double)(i % BLOCK)) {
            fail(what);
        }
    }
}

/* The root sends one block again and again, as many elements and as one. */
static void large_bcast(double *all, double *block)
{
    MPI_Datatype plain, many, one;
    MPI_Type_contiguous(BLOCK, MPI_DOUBLE, &plain);
    MPI_Type_create_resized(plain, 0, 0, &many);
    MPI_Type_create_hvector(BLOCKS, 1, 0, plain, &one);
    MPI_Type_commit(&many);
    MPI_Type_commit(&one);
    for (int way = 0; way < 2; way++) {
        if (rank == 0) {
            MPI_Bcast(block, way ? 1 : BLOCKS, way ? one : many, 0,
                      MPI_COMM_WORLD);
        } else {
            memset(all, 0, sizeof *all * BLOCK * BLOCKS);
            MPI_Bcast(all, BLOCK * BLOCKS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
            check_blocks(all, way ? "a long element" : "many elements");
        }
    }
    MPI_Type_free(&plain);
    MPI_Type_free(&many);
    MPI_Type_free(&one);
}

static void large(void)
{
    double *block = room(BLOCK), *all = room((size_t)BLOCK * BLOCKS);
    char *bytes = (char *)all;
    for (int i = 0; i < BLOCK; i++) {
        block[i] = i;
    }
    large_bcast(all, block);
    /* More elements in all than an int has numbers for. */
    size_t each = ((size_t)1 << 31) / (size_t)size + 4096;
    memset(bytes + (size_t)rank * each, 'a' + rank, each);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_CHAR, bytes, (int)each, MPI_CHAR,
                  MPI_COMM_WORLD);
    for (size_t r = 0; r < (size_t)size; r++) {
        if (bytes[r * each] != (char)('a' + r) ||
            bytes[(r + 1) * each - 1] != (char)('a' + r)) {
            fail("a long allgather");
        }
    }
    free(all);
    free(block);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int given = 0;
    bool serial = argc > 3 && strcmp(argv[3], "serial") == 0;
    MPI_Init_thread(&argc, &argv,
                    serial ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE,
                    &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(how, "wrong") == 0) {
        wrong();
    } else if (strcmp(how, "threads") == 0 && given == MPI_THREAD_MULTIPLE) {
        threads();
    } else if (strcmp(how, "attributes") == 0) {
        attributes();
    } else if (strcmp(how, "dead") == 0 && argc > 2) {
        dead(atoi(argv[2]));
    } else if (strcmp(how, "sub") == 0) {
        sub();
    } else if (strcmp(how, "ends") == 0 && given == MPI_THREAD_MULTIPLE) {
        end_all();
    } else if (strcmp(how, "calls") == 0) {
        calls(argc > 2 ? (size_t)atol(argv[2]) : 8);
    } else if (strcmp(how, "large") == 0) {
        large();
    } else {
        fail("what is it to do?");
    }
    MPI_Finalize();
    return 0;
}
