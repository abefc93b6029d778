/*
 * Groups, attributes and communicators as objects: what messages need to know
 * of them. How members agree on a new communicator, and MPI's functions, are in
 * room vrank/communicator.
 */
#ifndef POISE_VRANK_MPI_COMM_H
#define POISE_VRANK_MPI_COMM_H

#include "state.h"

/* ---- groups (group.c) --------------------------------------------------- */

/* Ranks in order, by their numbers in the whole job. */
struct poise_mpi_group {
    int refs; /* handles and communicators of its rank */
    int size;
    int rank;          /* the owner's place, or MPI_UNDEFINED */
    int first, stride; /* member i is first + i * stride ... */
    int *members;      /* ... unless there is a list; owned */
};

/* Of a copy of `members`; *out is to be released. MPI_ERR_NO_MEM. */
int group_make(struct vrank_mpi *mpi, const int *members, int size,
               MPI_Group *out);
/* Members first, first + stride, ... */
int group_range(struct vrank_mpi *mpi, int first, int stride, int size,
                MPI_Group *out);
MPI_Group group_hold(MPI_Group group);
void group_release(MPI_Group group);
static inline int group_at(const struct poise_mpi_group *group, int rank)
{
    return group->members ? group->members[rank]
                          : group->first + rank * group->stride;
}
/* The place of a rank of the job in a group, or MPI_UNDEFINED. */
int group_find(const struct poise_mpi_group *group, int number);
/* MPI_IDENT, MPI_SIMILAR or MPI_UNEQUAL. */
int group_compare(const struct poise_mpi_group *a,
                  const struct poise_mpi_group *b);
/* ---- attributes (attribute.c) ------------------------------------------- */

enum key_class { KEY_COMM, KEY_TYPE };

/* A key, for objects of one class. */
struct keyval {
    int refs; /* the user's, and each attribute's; 0: free */
    bool freed;
    enum key_class class;
    union {
        MPI_Comm_copy_attr_function *comm;
        MPI_Type_copy_attr_function *type;
    } copy;
    union {
        MPI_Comm_delete_attr_function *comm;
        MPI_Type_delete_attr_function *type;
    } delete;
    void *extra;
};

struct mpi_attribute {
    int key;
    void *value;
};

/* What an object keeps; zero is none. */
struct mpi_attributes {
    struct mpi_attribute *items; /* owned */
    int count;
};

/* A copy of `key` gets a number. Errors have been handed to the handler, as
 * those of the next. */
int keyval_create(struct vrank_mpi *mpi, const struct keyval *key, int *out);
/* The user needs it no more; *number becomes MPI_KEYVAL_INVALID. */
int keyval_free(struct vrank_mpi *mpi, enum key_class class, int *number);
/* NULL: there is none of that class. */
struct keyval *keyval_find(struct vrank_mpi *mpi, enum key_class class,
                           int number);

/* Which of an object's attributes has a key; -1: none. */
int attribute_at(const struct mpi_attributes *attributes, int key);
/* Set, or replace, what the object with handle `owner` keeps under a key. */
int attribute_set(struct vrank_mpi *mpi, enum key_class class, void *owner,
                  struct mpi_attributes *attributes, int number, void *value);
/* Call the delete function and take it out of the list. */
int attribute_delete(struct vrank_mpi *mpi, enum key_class class, void *owner,
                     struct mpi_attributes *attributes, int at);
/* Ask the copy functions what of `from` goes to `to`, for the object with
 * handle `owner`; the code of a function that failed. */
int attributes_copy(struct vrank_mpi *mpi, enum key_class class, void *owner,
                    const struct mpi_attributes *from,
                    struct mpi_attributes *to);
/* Call the delete functions and forget all. */
int attributes_clear(struct vrank_mpi *mpi, enum key_class class, void *owner,
                     struct mpi_attributes *attributes);
/* What one rank keeps of an object that all share: a predefined type. */
struct mpi_note {
    struct mpi_note *next;
    const void *owner;
    struct mpi_attributes attributes;
    char name[MPI_MAX_OBJECT_NAME]; /* "": as it was */
};
/* The note on an object; `make`: a new one if there is none. NULL: none, or no
 * memory. */
struct mpi_note *note_of(struct vrank_mpi *mpi, const void *owner, bool make);

/* With the rank. */
void mpi_keys_free(struct vrank_mpi *mpi);

/* ---- communicators (communicator.c) ------------------------------------- */

/* Messages of a communicator pass in several planes that never mix. */
enum mpi_plane {
    PLANE_POINT,      /* the user's */
    PLANE_COLLECTIVE, /* of collectives: tags are the callers' */
    PLANE_MAKING,     /* of making communicators out of it */
    PLANES = 4
};

/* What the members of a communicator in this process share. */
struct vcomm_shared {
    struct vcomm_shared *next; /* in the job's table */
    uint64_t context;
    int lowest;  /* number of the lowest member: communicators that were
                    split at the same time have the same context */
    int members; /* how many are in this process */
    int refs;    /* communicators; under the job's lock */
    struct vrank_spin lock; /* for the collectives */
    void *collective;       /* theirs; NULL at first; under `lock` */
    void (*collective_free)(void *state); /* called with it at the end */
};

/* How the ranks of a communicator are laid out; the beginning of what its
 * makers keep. */
struct vcomm_topology {
    /* Give `to`, a duplicate of `from`, the same; an error class. */
    int (*copy)(const struct poise_mpi_comm *from, struct poise_mpi_comm *to);
    void (*free)(struct vcomm_topology *topology);
};

struct poise_mpi_comm {
    uint64_t context; /* plane p is context + p */
    int rank, size;   /* mine, and of the (local) group */
    struct vrank_mpi *mpi;
    MPI_Group group;  /* the ranks that MPI_Comm_rank counts */
    MPI_Group remote; /* of an intercommunicator: where messages go */
    int refs;         /* the handle, and requests under way */
    bool predefined;  /* MPI_COMM_WORLD, MPI_COMM_SELF */
    MPI_Errhandler handler;
    struct mpi_attributes attributes;
    struct vcomm_shared *shared;
    struct poise_mpi_comm *local; /* of an intercommunicator: its own group's,
                                     for making and collectives */
    uint32_t sequence;            /* of collectives: the same on all ranks */
    int makings;                  /* of communicators out of it: the same */
    struct vcomm_topology *topology;    /* owned; NULL: none */
    struct poise_mpi_comm *next, *prev; /* of its rank */
    char name[MPI_MAX_OBJECT_NAME];
};

/* The group that messages to a rank of `comm` go to. */
static inline const struct poise_mpi_group *
vcomm_peers(const struct poise_mpi_comm *comm)
{
    return comm->remote ? comm->remote : comm->group;
}
/* The object behind a handle; NULL for MPI_COMM_NULL. */
static inline struct poise_mpi_comm *vcomm_of(struct vrank_mpi *mpi,
                                              MPI_Comm comm)
{
    if (comm == MPI_COMM_WORLD) {
        return mpi->world;
    }
    return comm == MPI_COMM_SELF ? mpi->self : comm;
}

/* The handle that the user knows. */
static inline MPI_Comm vcomm_handle(struct poise_mpi_comm *comm)
{
    if (!comm->predefined) {
        return comm;
    }
    return comm == comm->mpi->world ? MPI_COMM_WORLD : MPI_COMM_SELF;
}
/* A communicator with a context that all its members know; `remote` may be
 * NULL. */
int vcomm_new(struct vrank_mpi *mpi, uint64_t context, MPI_Group group,
              MPI_Group remote, struct poise_mpi_comm **out);
/* A context that was never given out before, on any rank: the rank's number and
 * how many it has given out. */
uint64_t vcomm_context(struct vrank_mpi *mpi);
void vcomm_hold(struct poise_mpi_comm *comm);
void vcomm_release(struct poise_mpi_comm *comm);
/* Free all that a rank has left. */
void vcomm_free_all(struct vrank_mpi *mpi);

/* Join the others of `group` that make a communicator with this context at
 * the same time; NULL: no memory. */
struct vcomm_shared *vcomm_shared_join(uint64_t context,
                                       const struct poise_mpi_group *group);
void vcomm_shared_leave(struct vcomm_shared *shared);

#endif /* POISE_VRANK_MPI_COMM_H */
