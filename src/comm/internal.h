/*
 * What the files of room comm share: the transport below a world, the world
 * itself, and the parts that tests look at one by one.
 *
 *   world.c        making worlds, accessors, sub-worlds
 *   message.c      send, receive, wait: trailers, emulated latency, kept ones
 *   collective.c   binomial trees over messages
 *   placement.c    numbering, groups, peers, synthetic layouts
 *   locate.c       where this process is: host, site, NUMA domain
 *   launcher.c     by which launcher it was started
 *   local.c        transport: threads of one process, or one rank
 *   mpi.c, load.c  transport: a back end that was loaded
 *   wire.c         messages without a transport's costs:
 *   share.c        memory that processes of a node share,
 *   ring.c         and the rings in it
 */
#ifndef POISE_COMM_INTERNAL_H
#define POISE_COMM_INTERNAL_H

#include <poise/comm.h>
#include <poise/core.h>
#include <poise/trace.h>
#include <poise/trace_clock.h>

/* ---- transports --------------------------------------------------------- */

/* Tags as transports see them: a user's tag and what the trailer holds. */
#define COMM_TAG_TIMED 0x4000      /* when it was sent */
#define COMM_TAG_COLLECTIVE 0x8000 /* which collective it belongs to */
#define COMM_TAG_LIMIT 0xffff

struct comm_transport;

/* Nothing here blocks but `wait`, and `split` and `destroy` where the other
 * ranks are late. Never a message to oneself: the world keeps those. */
struct comm_transport_ops {
    /* Takes over `data` (malloc), also when it fails. */
    int (*send)(struct comm_transport *transport, int dest, int tag, void *data,
                size_t len);
    /* 1 and a message (its data is the caller's), 0, or negative. */
    int (*poll)(struct comm_transport *transport, struct poise_message *out);
    /* Until a message may be there, the event moved on from `seen`, or the
     * time is over. */
    void (*wait)(struct comm_transport *transport, uint32_t seen,
                 uint64_t timeout_ns);
    size_t (*unsent)(const struct comm_transport *transport);
    /* A transport among `count` ranks, of which I am number `rank`; `colour`
     * distinguishes the groups that split at the same time. */
    int (*split)(struct comm_transport *transport, int colour, int rank,
                 int count, struct comm_transport **out);
    /* The first half of `destroy`, which does not wait: whether all ranks began
     * it. NULL: ends wait for nobody. */
    bool (*leave)(struct comm_transport *transport);
    void (*destroy)(struct comm_transport *transport);
};

struct comm_transport {
    const struct comm_transport_ops *ops;
    int rank, size;
    bool threads_allowed;
    uint64_t startup_ns;
    char name[64];
    struct poise_event event; /* signalled by arrivals and wake-ups */
};

/* `size` transports of this process; `opts` may be NULL. */
int comm_local_create(int size, const struct poise_local_options *opts,
                      struct comm_transport **out);

/* ---- messages that wait for their time ---------------------------------- */

struct comm_kept {
    uint64_t due_ns; /* CLOCK_MONOTONIC; 0: at once */
    uint64_t order;  /* among those due at the same time */
    struct poise_message message;
};

/* A binary heap; zero-initialised is empty. */
struct comm_heap {
    struct comm_kept *items;
    size_t count, cap;
};

/* Room for one more, so that a push cannot fail: a message that has left the
 * transport must not be lost. 0 or -ENOMEM. */
int comm_heap_reserve(struct comm_heap *heap);
void comm_heap_push(struct comm_heap *heap, const struct comm_kept *item);
/* The first of a heap that is not empty. */
struct poise_message comm_heap_pop(struct comm_heap *heap);
/* Frees the messages too. */
void comm_heap_free(struct comm_heap *heap);

/* ---- placement ---- */

/* Where one process is, as it sees itself. Owned strings. */
struct comm_place {
    char *site, *node;
    int numa;
};

/* `sites_file` may be NULL: all ranks are on one site. */
int comm_place_find(const char *sites_file, struct comm_place *out);
void comm_place_free(struct comm_place *place);
/* The site of `host` by the lines of `text`; NULL if none fits. The result
 * points into `text`, which is cut up. */
const char *comm_site_of(char *text, const char *host);

struct comm_layout {
    struct poise_placement *placements; /* [size], owned */
    uint64_t cost_ns[POISE_LEVELS];
};

/* From a synthetic description; the error names the text. */
int comm_layout_synthetic(const char *text, int size, struct comm_layout *out);
/* From the places of `size` ranks. */
int comm_layout_measured(const struct comm_place *places, int size,
                         struct comm_layout *out);
/* Of `count` of the `size` ranks, as a world of their own. */
int comm_layout_part(const struct comm_layout *layout, int size,
                     const int *ranks, int count, struct comm_layout *out);
int comm_layout_pack(const struct comm_layout *layout, int size,
                     struct poise_buf *out);
int comm_layout_unpack(struct poise_reader *reader, int size,
                       struct comm_layout *out);

/* What one rank derives from a layout. */
struct comm_placements {
    struct comm_layout layout;
    int *groups[POISE_LEVELS]; /* ranks of my unit, ascending; owned */
    int group_sizes[POISE_LEVELS];
    int *peers; /* all the others, nearest first; owned */
    int first[POISE_LEVELS + 1];
    bool timed; /* some level costs something */
};

/* Takes over `layout`, also when it fails. */
int comm_placements_create(struct comm_layout *layout, int rank, int size,
                           struct comm_placements *out);
void comm_placements_free(struct comm_placements *placements);
enum poise_level
comm_placements_distance(const struct poise_placement *placements, int a,
                         int b);

/* ---- the world ---------------------------------------------------------- */

/* A message of a collective that came before it was asked for. */
struct comm_letter {
    uint64_t due_ns, sequence;
    uint32_t op;
    int32_t code; /* 0, or why its sender failed */
    struct poise_message message;
};

struct poise_world {
    struct comm_transport *transport;
    int rank, size;
    uint64_t id;     /* poise_world_id */
    uint64_t splits; /* worlds made of it, the same on every rank */
    struct comm_placements placements;
    struct comm_heap kept; /* arrived, not yet received */
    uint64_t order;        /* of arrivals */
    uint64_t sequence;     /* of collectives, the same on every rank */
    struct comm_letter *inbox;
    size_t inbox_count, inbox_cap;
    uint32_t woken; /* __atomic access: set by any thread */
    bool records;   /* the environment of rank 0 asks for a session */
    struct poise_trace *trace; /* of the session that it began; else NULL */
    /* Of its clocks, at rank 0: when the session began, they were compared,
     * somebody asked. */
    uint64_t began_ns, compared_ns, asked_ns;
    bool one_clock; /* there is nothing to compare */
};

/* Send with `len` bytes of data and a trailer for `tag`'s flags. */
int comm_post(struct poise_world *world, int dest, int tag, const void *data,
              size_t len, const void *trailer, size_t trailer_len);
/* Move one message from the transport to where it belongs: 1, 0, negative. */
int comm_take_in(struct poise_world *world);
/* After how many calls some `left_ns` will be over, if `calls` of them took
 * `since_ns`: at least 1, and few enough to hear of it that they take longer
 * than they did. */
uint64_t comm_session_next(uint64_t since_ns, uint64_t calls, uint64_t left_ns);
/* Nanoseconds from now to `due_ns`, 0 if past. */
uint64_t comm_time_left(uint64_t due_ns);

/* Whether to try again what failed with `err`, after a moment: memory is
 * short, and others depend on this rank. Start with `tries` at 0. */
bool comm_try_again(int code, unsigned *tries);

/* The trailer of a collective's messages. */
struct comm_stamp {
    uint64_t sequence;
    uint32_t op;
    int32_t code;
};

/* ---- launchers and back ends -------------------------------------------- */

struct comm_launch {
    const char *flavour; /* "ompi", "mpich"; NULL: no launcher started us */
    const char *by;      /* the variable that says so */
    int64_t size;        /* ranks, by the launcher; 0: it did not say */
};

/* `env` stands for getenv. -ENOTSUP: a launcher that no MPI can join. */
int comm_launcher_find(const char *(*env)(const char *name),
                       struct comm_launch *out);

/* Load a module of Poise that lies beside the library: from the directory in
 * POISE_BACKEND_DIR, poise/ beside the library, or its own directory. NULL if
 * there is none; `why`, if not NULL, is then appended to. It stays loaded. */
void *comm_module_open(const char *file, struct poise_buf *why);

struct comm_backend;
/* Load the table of `flavour`; stays loaded. */
int comm_backend_load(const char *flavour, const struct comm_backend **out);

/* Join the job that `launch` describes. */
int comm_mpi_create(const struct comm_launch *launch,
                    struct comm_transport **out);
/* What an MPI transport stands on; -ENOTSUP (no error set) for others. */
struct comm_mpi;
int comm_mpi_of(const struct comm_transport *transport,
                const struct comm_backend **backend, struct comm_mpi **mpi);
int comm_mpi_adopt(const char *flavour, const void *comm, size_t comm_bytes,
                   struct comm_transport **out);

#endif
