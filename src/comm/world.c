/*
 * Worlds: made from a transport and what is known about placements.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- setting up --------------------------------------------------------- */

/* A world that can exchange messages but knows no placements yet. Takes over
 * `transport`, also when it fails. */
static struct poise_world *world_on(struct comm_transport *transport)
{
    struct poise_world *world = poise_alloc(1, sizeof *world);
    if (!world) {
        transport->ops->destroy(transport);
        return NULL;
    }
    world->transport = transport;
    world->rank = transport->rank;
    world->size = transport->size;
    return world;
}

static uint64_t id_of(uint64_t text)
{
    uint64_t id = poise_hash_u64(text);
    return id ? id : 1;
}

/* Not from the random numbers that others go by, which would be others then. */
static uint64_t new_id(void)
{
    uint64_t text[3] = {poise_clock_ns(), (uint64_t)getpid()};
    text[2] = (uint64_t)(uintptr_t)text; /* another one in each thread */
    return id_of(poise_hash_bytes(text, sizeof text, 0));
}

static const char *choose(const char *option, const char *variable)
{
    const char *text = option ? option : getenv(variable);
    return text && *text ? text : NULL;
}

static int pack_place(const struct poise_world_options *options,
                      struct poise_buf *out)
{
    struct comm_place place;
    int code =
        comm_place_find(choose(options->sites_file, "POISE_SITES"), &place);
    if (code < 0) {
        return code;
    }
    poise_buf_blob(out, place.site, strlen(place.site) + 1);
    poise_buf_blob(out, place.node, strlen(place.node) + 1);
    code = poise_buf_varint(out, (uint64_t)place.numa);
    comm_place_free(&place);
    return code;
}

/* A blob for each rank, as pack_place made it. */
static int layout_from(const struct poise_buf *blobs, int size,
                       struct comm_layout *out)
{
    struct comm_place *places = poise_alloc((size_t)size, sizeof *places);
    if (!places) {
        return -ENOMEM;
    }
    struct poise_reader all = poise_reader_of(blobs->data, blobs->len);
    int code = 0;
    for (int rank = 0; rank < size && code == 0; rank++) {
        size_t len;
        const void *blob = poise_reader_blob(&all, &len);
        struct poise_reader one = poise_reader_of(blob, blob ? len : 0);
        /* Borrowed: the places live no longer than the blobs. */
        places[rank].site = (char *)poise_reader_blob(&one, &len);
        places[rank].node = (char *)poise_reader_blob(&one, &len);
        places[rank].numa = (int)poise_reader_varint(&one);
        if (all.error || one.error) {
            code = poise_error_set(EBADMSG, "find out where ranks sit", NULL,
                                   "rank %d sent nonsense", rank);
        }
    }
    if (code == 0) {
        code = comm_layout_measured(places, size, out);
    }
    free(places);
    return code;
}

/* Rank 0 works the layout out from what each rank says of itself; a failure on
 * any rank becomes one on all. */
static int exchange_layout(struct poise_world *world,
                           const struct poise_world_options *options,
                           struct comm_layout *out)
{
    struct poise_buf mine = {0}, all = {0};
    const char *synthetic = choose(options->topology, "POISE_TOPOLOGY");
    struct comm_layout layout = {0};
    int code = poise_world_agree(world, pack_place(options, &mine));
    if (code < 0) {
        goto free_bytes;
    }
    code = poise_world_gather(world, 0, mine.data, mine.len, &all);
    if (world->rank == 0 && code == 0) {
        code = synthetic
                   ? comm_layout_synthetic(synthetic, world->size, &layout)
                   : layout_from(&all, world->size, &layout);
    }
    if (world->rank == 0 && code == 0) {
        poise_buf_reset(&all);
        poise_buf_varint(&all, choose(options->trace, "POISE_TRACE") != NULL);
        poise_buf_u64(&all, new_id());
        code = comm_layout_pack(&layout, world->size, &all);
        free(layout.placements);
    }
    code = poise_world_agree(world, code);
    if (code < 0) {
        goto free_bytes;
    }
    code = poise_world_broadcast(world, 0, &all);
    if (code == 0) {
        struct poise_reader reader = poise_reader_of(all.data, all.len);
        world->records = poise_reader_varint(&reader) != 0;
        world->id = poise_reader_u64(&reader);
        code = comm_layout_unpack(&reader, world->size, out);
    }
free_bytes:
    poise_buf_free(&mine);
    poise_buf_free(&all);
    return code;
}

/* Find out about placements and complete the world, or destroy it. Collective.
 */
static int complete(struct poise_world *world,
                    const struct poise_world_options *options,
                    struct poise_world **out)
{
    struct comm_layout layout;
    int code = exchange_layout(world, options, &layout);
    if (code == 0) {
        code = comm_placements_create(&layout, world->rank, world->size,
                                      &world->placements);
    }
    if (code < 0) {
        poise_world_destroy(world);
        return code;
    }
    *out = world;
    return 0;
}

/* ---- worlds in one process ---------------------------------------------- */

static int layout_of_process(const char *topology, int size,
                             struct comm_layout *out)
{
    const char *synthetic = choose(topology, "POISE_TOPOLOGY");
    if (synthetic) {
        return comm_layout_synthetic(synthetic, size, out);
    }
    struct comm_layout layout = {0};
    layout.placements = poise_alloc((size_t)size, sizeof *layout.placements);
    if (!layout.placements) {
        return -ENOMEM;
    }
    *out = layout;
    return 0;
}

int poise_world_create_local(int size, const struct poise_local_options *opts,
                             struct poise_world **worlds)
{
    if (size < 1) {
        return poise_error_set(EINVAL, "make a world", NULL,
                               "it cannot have %d ranks", size);
    }
    struct comm_transport **transports =
        poise_alloc((size_t)size, sizeof(struct comm_transport *));
    struct poise_world **made =
        poise_alloc((size_t)size, sizeof(struct poise_world *));
    int code = transports && made ? comm_local_create(size, opts, transports)
                                  : -ENOMEM;
    if (code < 0) {
        goto free_made;
    }
    uint64_t id = new_id();
    for (int rank = 0; rank < size; rank++) {
        struct comm_layout layout;
        made[rank] = world_on(transports[rank]);
        if (!made[rank]) {
            code = -ENOMEM;
            continue;
        }
        made[rank]->id = id;
        if (code == 0) {
            code =
                layout_of_process(opts ? opts->topology : NULL, size, &layout);
        }
        if (code == 0) {
            code = comm_placements_create(&layout, rank, size,
                                          &made[rank]->placements);
        }
    }
    if (code == 0) {
        memcpy(worlds, made, (size_t)size * sizeof *worlds);
        goto free_made;
    }
    for (int rank = 0; rank < size; rank++) {
        if (made[rank]) {
            poise_world_destroy(made[rank]);
        }
    }
free_made:
    free(made);
    free(transports);
    return code;
}

static int create_alone(const struct poise_world_options *options,
                        struct poise_world **out)
{
    struct poise_local_options opts = {.topology = options->topology};
    return poise_world_create_local(1, &opts, out);
}

/* ---- making and ending -------------------------------------------------- */

static const char *from_environment(const char *name)
{
    return getenv(name);
}

/* A world of its own, without MPI or with it. */
static int create(const struct poise_world_options *options,
                  struct poise_world **out)
{
    struct comm_launch launch = {0};
    struct comm_transport *transport;
    if (!options->alone) {
        int code = comm_launcher_find(from_environment, &launch);
        if (code < 0) {
            return code;
        }
    }
    if (!launch.flavour) {
        int code = create_alone(options, out);
        if (code == 0) {
            (*out)->records = choose(options->trace, "POISE_TRACE") != NULL;
        }
        return code;
    }
    int code = comm_mpi_create(&launch, &transport);
    if (code < 0) {
        return code;
    }
    struct poise_world *world = world_on(transport);
    return world ? complete(world, options, out) : -ENOMEM;
}

int poise_world_create(const struct poise_world_options *options,
                       struct poise_world **out)
{
    const struct poise_world_options none = {0};
    struct poise_world *world;
    options = options ? options : &none;
    int code = create(options, &world);
    if (code < 0) {
        return code;
    }
    /* What rank 0 was asked: all ranks have the same `records`. */
    if (world->records) {
        code = poise_world_trace_begin(world,
                                       choose(options->trace, "POISE_TRACE"));
    }
    if (code < 0) {
        poise_world_destroy(world);
        return code;
    }
    *out = world;
    return 0;
}

int poise_world_adopt(const char *flavour, const void *comm, size_t comm_bytes,
                      struct poise_world **out)
{
    const struct poise_world_options none = {0};
    struct comm_transport *transport;
    int code = comm_mpi_adopt(flavour, comm, comm_bytes, &transport);
    if (code < 0) {
        return code;
    }
    struct poise_world *world = world_on(transport);
    return world ? complete(world, &none, out) : -ENOMEM;
}

/* The number of my unit at `level`, which distinguishes units. */
static int unit_of(const struct poise_world *world, enum poise_level level)
{
    struct poise_placement placement =
        poise_world_placement(world, world->rank);
    switch (level) {
    case POISE_LEVEL_NUMA:
        return placement.numa;
    case POISE_LEVEL_NODE:
        return placement.node;
    case POISE_LEVEL_SITE:
        return placement.site;
    default:
        return 0;
    }
}

int poise_world_split(struct poise_world *world, enum poise_level level,
                      struct poise_world **out)
{
    const int *ranks;
    int count = poise_world_group(world, level, &ranks);
    int rank = 0;
    while (ranks[rank] != world->rank) {
        rank++;
    }
    struct comm_layout layout = {0};
    struct comm_transport *transport = NULL;
    struct poise_world *part = poise_alloc(1, sizeof *part);
    int code = part ? comm_layout_part(&world->placements.layout, world->size,
                                       ranks, count, &layout)
                    : -ENOMEM;
    if (code == 0) {
        code = comm_placements_create(&layout, rank, count, &part->placements);
    }
    /* What can fail on one rank alone comes before the split itself. */
    code = poise_world_agree(world, code);
    if (code < 0) {
        goto free_part;
    }
    code = world->transport->ops->split(world->transport, unit_of(world, level),
                                        rank, count, &transport);
    code = poise_world_agree(world, code);
    if (code < 0) {
        goto free_part;
    }
    part->transport = transport;
    part->rank = rank;
    part->size = count;
    part->id =
        id_of(poise_hash_u64(world->id + ++world->splits) + (uint64_t)ranks[0]);
    *out = part;
    return 0;

free_part:
    if (transport) {
        transport->ops->destroy(transport);
    }
    if (part) {
        comm_placements_free(&part->placements);
        free(part);
    }
    return code;
}

bool poise_world_leave(struct poise_world *world)
{
    const struct comm_transport_ops *ops = world->transport->ops;
    return !ops->leave || ops->leave(world->transport);
}

void poise_world_destroy(struct poise_world *world)
{
    if (!world) {
        return;
    }
    if (world->records) {
        poise_world_trace_end(world);
    }
    world->transport->ops->destroy(world->transport);
    for (size_t i = 0; i < world->inbox_count; i++) {
        free(world->inbox[i].message.data);
    }
    free(world->inbox);
    comm_heap_free(&world->kept);
    comm_placements_free(&world->placements);
    free(world);
}

/* ---- asking ------------------------------------------------------------- */

int poise_world_rank(const struct poise_world *world)
{
    return world->rank;
}

int poise_world_size(const struct poise_world *world)
{
    return world->size;
}

bool poise_world_threads_allowed(const struct poise_world *world)
{
    return world->transport->threads_allowed;
}

uint64_t poise_world_id(const struct poise_world *world)
{
    return world->id;
}

const char *poise_world_name(const struct poise_world *world)
{
    return world->transport->name;
}

uint64_t poise_world_startup_ns(const struct poise_world *world)
{
    return world->transport->startup_ns;
}

struct poise_placement poise_world_placement(const struct poise_world *world,
                                             int rank)
{
    return world->placements.layout.placements[rank];
}

enum poise_level poise_world_distance(const struct poise_world *world, int a,
                                      int b)
{
    return comm_placements_distance(world->placements.layout.placements, a, b);
}

uint64_t poise_world_cost_ns(const struct poise_world *world,
                             enum poise_level level)
{
    return world->placements.layout.cost_ns[level];
}

int poise_world_group(const struct poise_world *world, enum poise_level level,
                      const int **ranks)
{
    *ranks = world->placements.groups[level];
    return world->placements.group_sizes[level];
}

bool poise_world_is_root(const struct poise_world *world,
                         enum poise_level level)
{
    return world->placements.groups[level][0] == world->rank;
}

struct poise_peers poise_world_peers(const struct poise_world *world)
{
    struct poise_peers peers = {.ranks = world->placements.peers};
    memcpy(peers.first, world->placements.first, sizeof peers.first);
    return peers;
}
