/*
 * What the files of the archive share. Who calls whom: create.c (the walk) ->
 * source.c (one member's bytes) -> encode.c (headers) and part.c (where they
 * go); extract.c (the pool) -> place.c (one member, below the destination) ->
 * decode.c (headers); both index.c.
 */
#ifndef WALK_ARCHIVE_INTERNAL_H
#define WALK_ARCHIVE_INTERNAL_H

#include <poise/archive.h>

#include <errno.h>
#include <pthread.h>

enum {
    TAR_BLOCK = 512,
    TAR_END = 1024, /* two blocks of zeros */
    /* Extended headers and long names: xattrs are 64 KiB each. */
    TAR_EXTENDED_MOST = 8 << 20,
    TAR_CHUNK = 1 << 20,        /* read, written and hashed at a time */
    TAR_EXTENTS_MOST = 1 << 20, /* of a sparse file */
    TAR_PARTS_MOST = 1 << 20,
};

static inline uint64_t tar_padded(uint64_t bytes)
{
    return (bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
}

/* Which archive a part belongs to: a comment in front of it. */
struct tar_identity {
    uint64_t id;          /* 0: it says nothing, as parts of other programs */
    unsigned part, parts; /* this one, of so many */
};

/* A range of a file that holds data. */
struct tar_extent {
    uint64_t offset, len;
};

/* One member, as its headers say; strings and arrays are in its memory. */
struct tar_member {
    char type;        /* '0' file, '1' hard link, '2' symbolic link, '3' and
                         '4' devices, '5' directory, '6' pipe; other letters:
                         of no use here */
    const char *name; /* NUL-terminated, as it stands there */
    const char *link; /* of links; "" else */
    struct poise_walk_meta meta; /* mode with the type */
    bool sparse;                 /* extents say where data belong */
    struct tar_extent *extents;
    size_t extent_count;
    uint64_t start;     /* in the part: its first header */
    uint64_t data;      /* where its data begin */
    uint64_t data_size; /* without padding and sparse maps */
    uint64_t end;       /* where the next member begins */
};

/* Its text, for printf and scanf: id, part, parts. */
#define TAR_IDENTITY "poise archive %16llx, part %u of %u"

/* ---- encode.c ----------------------------------------------------------- */

/* Append the headers of a member: name, type, link, meta, and for files
 * data_size, or extents if sparse (then also the map; data_size includes it in
 * what the header says). -EOVERFLOW where a value fits nowhere. */
int tar_encode(const struct tar_member *member, struct poise_buf *out);
/* The global header in front of a part. */
int tar_encode_identity(const struct tar_identity *identity,
                        struct poise_buf *out);

/* ---- decode.c ----------------------------------------------------------- */

/* Where headers are read from. */
struct tar_source {
    int fd;           /* -1: `data` */
    const char *data; /* [size], for tests */
    uint64_t size;
    const char *path; /* for errors */
};
/* All `len` bytes at `offset`, or -EBADMSG if it is shorter, or an error. */
int tar_read(const struct tar_source *source, uint64_t offset, void *data,
             size_t len);

struct tar_memory { /* of one member */
    struct poise_buf text, value, link, xattrs, map;
    struct tar_extent *extents;
    size_t extent_count, extent_cap;
};
void tar_memory_free(struct tar_memory *memory);

/* Read the member at `offset`: 1; 0: the end mark is there; -EBADMSG: it is
 * damaged, or cut short, and member->end tells how far it reaches if that is
 * known, else 0; other negative codes: cannot be read. Errors are recorded.
 * Archives' global headers are passed over. */
int tar_next(const struct tar_source *source, uint64_t offset,
             struct tar_member *member, struct tar_memory *memory);
/* What a part says that it is: 0, also if it says nothing, or an error. */
int tar_read_identity(const struct tar_source *source,
                      struct tar_identity *out);
/* The next offset, from `offset` on, where a header may be; size if none. */
uint64_t tar_resync(const struct tar_source *source, uint64_t offset);

/* ---- spool.c ------------------------------------------------------------ */

enum { TAR_SPOOL_BYTES = 128 << 10 }; /* a block is put when it has so many */

/* Blocks of bytes in a file without a name. */
struct tar_spool {
    int fd; /* -1: nothing was put */
    uint64_t size, blocks;
    pthread_mutex_t lock; /* of puts */
};
void tar_spool_init(struct tar_spool *spool);
void tar_spool_free(struct tar_spool *spool);
/* Append what is in `block`, if anything, and empty it. Any thread. */
int tar_spool_put(struct tar_spool *spool, struct poise_buf *block);
/* The block at *at, and where the next is: 1, or 0 at the end. */
int tar_spool_next(const struct tar_spool *spool, uint64_t *at,
                   struct poise_buf *out);

/* First names of inodes that have several, in files without names. Whoever uses
 * it has a lock. */
struct tar_names {
    int table, text; /* -1: none yet */
    uint64_t cap, count, text_len;
};
void tar_names_init(struct tar_names *names);
void tar_names_free(struct tar_names *names);
/* 1 with the name in `name` and its part; 0: it is not there. */
int tar_names_find(struct tar_names *names, uint64_t dev, uint64_t ino,
                   unsigned *part, struct poise_buf *name);
int tar_names_add(struct tar_names *names, uint64_t dev, uint64_t ino,
                  unsigned part, const char *name);

/* ---- index.c ------------------------------------------------------------ */

struct tar_entry { /* a member's line */
    uint64_t offset, bytes;
    uint64_t hash; /* of all its bytes, padding included: see tar_hash */
    char type;
};
/* Go on with the hash of a member by one chunk: all but the last are of
 * TAR_CHUNK bytes. Begins with 0. */
static inline uint64_t tar_hash(uint64_t hash, const void *chunk, size_t len)
{
    return poise_hash_bytes(chunk, len, hash);
}
/* Append a line; the names of parts' members are kept for --list. */
void tar_index_put(struct poise_buf *out, unsigned part,
                   const struct tar_entry *entry, const char *name);
/* The file, piece by piece; lines do not go over the end of a piece. */
struct tar_index_file {
    struct poise_output *output;
    const char *path;      /* borrowed */
    struct poise_buf lens; /* of the pieces */
    uint64_t hash, pieces;
};
int tar_index_begin(struct tar_index_file *file, const char *path, uint64_t id,
                    const uint64_t *sizes, unsigned parts);
int tar_index_piece(struct tar_index_file *file, const void *lines, size_t len);
/* Give it its name if `code` is 0, else give it up. 0, `code`, or an error. */
int tar_index_end(struct tar_index_file *file, bool sync, int code);

struct tar_index {
    int fd; /* 0: none */
    char *path;
    uint64_t id;
    unsigned parts;
    uint64_t *sizes;                    /* [parts] */
    uint64_t lines_at, lens_at, pieces; /* in the file */
};
/* Look whether all of it is right: 1; 0: there is none; -EBADMSG: damaged. */
int tar_index_read(const char *path, struct tar_index *index);
void tar_index_free(struct tar_index *index);
/* Each line; `name` is not NUL-terminated. */
int tar_index_each(const struct tar_index *index,
                   int (*each)(unsigned part, const struct tar_entry *entry,
                               const char *name, size_t len, void *arg),
                   void *arg);

/* "OUT", "OUT.3", "OUT.index". */
int tar_name(struct poise_buf *out, const char *archive, const char *end);
int tar_part_name(struct poise_buf *out, const char *archive, unsigned part,
                  unsigned parts);

/* ---- place.c ------------------------------------------------------------ */

/* The destination, as one worker sees it. */
struct tar_place {
    int root;              /* borrowed */
    struct poise_buf path; /* of the directory that `fd` is, with its slash */
    int fd;                /* -1: none */
    /* Directories that were made on the way, each with a NUL. */
    struct poise_buf implied;
};
void tar_place_free(struct tar_place *place);
/* The directory in which a member's last component lies, made if it is not
 * there and `make`; *last points into `name`, which is changed. Never follows a
 * symbolic link. The descriptor is the place's. Negative errno, recorded. */
int tar_place_open(struct tar_place *place, char *name, bool make,
                   const char **last);
/* A member's name as it is used: without slashes at both ends, "." and "//".
 * 0: it is the destination itself. -EINVAL, recorded: "..", or none. */
int tar_place_name(const char *name, struct poise_buf *out);

#endif
