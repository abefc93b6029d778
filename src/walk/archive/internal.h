/*
 * What the files of the archive share. Writing: create.c (the walk) -> put.c
 * (where members' bytes go) -> encode.c (headers), pack.c (compressed parts);
 * extracting: extract.c (the pool) -> file.c (regular files), place.c (where,
 * below the destination), wait.c (the end) -> decode.c (headers) -> read.c,
 * unpack.c (their bytes); all of them: index.c, spool.c, jobs.c.
 */
#ifndef WALK_ARCHIVE_INTERNAL_H
#define WALK_ARCHIVE_INTERNAL_H

#include <poise/archive.h>
#include <poise/core.h>
#include <poise/make.h>

#include "walk/entry/entry.h"

#include <errno.h>
#include <pthread.h>

enum {
    TAR_BLOCK = 512,
    TAR_END = 1024, /* two blocks of zeros */
    /* Extended headers and long names: xattrs are 64 KiB each. */
    TAR_EXTENDED_MOST = 8 << 20,
    TAR_CHUNK = 1 << 20,        /* read, written and hashed at a time */
    TAR_WINDOW = 256 << 10,     /* read ahead, for each worker */
    TAR_FRAME_MOST = 4 << 20,   /* of bytes that a frame of a part becomes */
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

struct tar_window;
struct tar_frames;
/* Where members are read from; of one thread. Offsets are those of the archive,
 * also where the file is compressed. */
struct tar_source {
    int fd;           /* -1: `data` */
    const char *data; /* [size], for tests */
    uint64_t size;    /* UINT64_MAX: not known before the end was read */
    const char *path; /* for errors */
    bool packed;      /* compressed by Zstandard */
    const struct tar_frames *frames; /* packed: where its frames begin; NULL: it
                                        is read through. Borrowed */
    struct tar_window *window; /* what was read ahead; NULL: nothing is, and it
                                  is not packed. Borrowed */
};
/* All `len` bytes at `offset`, or -EBADMSG if it is shorter, or an error. */
int tar_read(struct tar_source *source, uint64_t offset, void *data,
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
int tar_next(struct tar_source *source, uint64_t offset,
             struct tar_member *member, struct tar_memory *memory);
/* What a part says that it is: 0, also if it says nothing, or an error. */
int tar_read_identity(struct tar_source *source, struct tar_identity *out);
/* The next offset, from `offset` on, where a header may be; size if none. */
uint64_t tar_resync(struct tar_source *source, uint64_t offset);

/* ---- read.c ------------------------------------------------------------- */

/* What a thread has read of a source; zero to begin with. */
struct tar_window {
    struct poise_buf bytes; /* from `at` on */
    uint64_t at;
    uint64_t wanted_to; /* so far it pays to read ahead; at most TAR_WINDOW */
    struct tar_unpacker *unpacker;
};
void tar_window_free(struct tar_window *window);
/* Nothing is known of the source that is read now. */
void tar_window_reset(struct tar_window *window);
/* The bytes at [offset, offset + len) where they lie, valid until more is read;
 * NULL: they lie nowhere in one piece, or cannot be read: see tar_read. */
const char *tar_look(struct tar_source *source, uint64_t offset, size_t len);

/* ---- unpack.c ----------------------------------------------------------- */

/* Whether a file begins as Zstandard's do. */
bool tar_is_packed(int fd, const char *path);
/* Read the table of frames at the end of a file: 1; 0: there is none, or one
 * that leads to frames of too many bytes; or an error. */
int tar_frames_read(int fd, uint64_t file_size, const char *path,
                    struct tar_frames **out, uint64_t *size);
void tar_frames_free(struct tar_frames *frames);
/* Read into the window what lies at `offset`, and what comes with it. Sources
 * that are read through cannot go back further than it reaches. Their size is
 * set when the end is met. */
int tar_unpack(struct tar_source *source, uint64_t offset);
/* Where the frame ends that holds `offset`. */
uint64_t tar_frame_end(const struct tar_source *source, uint64_t offset);
void tar_unpacker_reset(struct tar_unpacker *unpacker);
void tar_unpacker_free(struct tar_unpacker *unpacker);

/* ---- pack.c ------------------------------------------------------------- */

/* What a thread compresses with; zero to begin with. */
struct tar_packer {
    void *context;
    struct poise_buf out; /* the frame */
};
void tar_packer_free(struct tar_packer *packer);
/* One frame of `len` bytes, into packer->out. */
int tar_pack(struct tar_packer *packer, int level, const void *data,
             size_t len);
/* A row of the table of frames, and what stands around all of them. */
void tar_frame_row(struct poise_buf *rows, size_t packed, size_t plain);
void tar_frames_head(struct poise_buf *out, uint64_t frames);
void tar_frames_tail(struct poise_buf *out, uint64_t frames);
enum { TAR_FRAME_ROW = 8, TAR_FRAMES_MOST = 1 << 27 };

/* ---- jobs.c ------------------------------------------------------------- */

/*
 * A file that several threads work on, chunk after chunk. Each takes the next
 * chunk, reads it, and waits for its turn: what depends on order, such as the
 * hash, is done then. Whoever waits waits for threads that are about a chunk,
 * so all come to their turn.
 */
struct tar_job {
    uint64_t id;   /* in its table */
    unsigned refs; /* __atomic */
    pthread_mutex_t lock;
    pthread_cond_t turned;
    uint64_t chunks, next, turn, done;
    uint64_t hash; /* of the chunks whose turn was */
    int error;
};
void tar_job_init(struct tar_job *job, uint64_t chunks);
void tar_job_destroy(struct tar_job *job);
/* Begin again; nobody is about a chunk. */
void tar_job_reset(struct tar_job *job);
bool tar_job_take(struct tar_job *job, uint64_t *chunk);
int tar_job_error(struct tar_job *job);
/* Wait for the turn: 0, and the job is locked; or the error of another chunk,
 * not recorded. */
int tar_job_turn(struct tar_job *job, uint64_t chunk);
/* It is over: the chunk's hash is added. Unlocks. */
void tar_job_turned(struct tar_job *job, uint64_t hash);
/* The chunk is done, or failed: true if nobody is about any, and nobody will
 * be. */
bool tar_job_done(struct tar_job *job, int code);

/* Jobs that others may join: by numbers, which may outlive them. */
enum { TAR_JOBS_MOST = 4 };
struct tar_jobs {
    pthread_mutex_t lock;
    uint64_t ids;
    struct tar_job *slots[TAR_JOBS_MOST];
};
void tar_jobs_init(struct tar_jobs *jobs);
void tar_jobs_free(struct tar_jobs *jobs);
/* Give it a number, and the table a share in it; false: there are too many. */
bool tar_jobs_add(struct tar_jobs *jobs, struct tar_job *job);
/* A share in the job of this number; NULL: it is over. */
struct tar_job *tar_jobs_join(struct tar_jobs *jobs, uint64_t id);
/* Take it out of the table; the table's share is the caller's now. Whether it
 * was there. */
bool tar_jobs_remove(struct tar_jobs *jobs, struct tar_job *job);
static inline void tar_job_share(struct tar_job *job)
{
    __atomic_fetch_add(&job->refs, 1, __ATOMIC_RELAXED);
}
/* Give up a share: true if it was the last one. */
static inline bool tar_job_leave(struct tar_job *job)
{
    return __atomic_sub_fetch(&job->refs, 1, __ATOMIC_ACQ_REL) == 0;
}

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
/* Append bytes that are no block; where they are. Of one spool all are blocks,
 * or none. */
int tar_spool_append(struct tar_spool *spool, const struct poise_buf *bytes,
                     uint64_t *offset);
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
    uint64_t hash; /* of all its bytes, padding included */
    char type;
};
/* Of one chunk of a member: all but the last are of TAR_CHUNK bytes. */
static inline uint64_t tar_hash_chunk(const void *chunk, size_t len)
{
    return poise_hash_bytes(chunk, len, 0);
}
/* Go on with the hash of a member by that of its chunk `number`. */
uint64_t tar_hash_join(uint64_t hash, uint64_t number, uint64_t chunk_hash);
/* Of all of it. */
uint64_t tar_hash(const void *bytes, size_t len);
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
    unsigned version; /* 2: hashes of several chunks are chained otherwise */
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

/* The destination, as one worker sees it. The directory that was opened last
 * stays open, and the one that holds it: where one member goes the next ones
 * often go, or one level higher or lower. */
struct tar_opened {
    struct poise_buf path;
    int fd;          /* -1: none */
    uint64_t serial; /* how many were opened before */
};
struct tar_place {
    int root; /* borrowed */
    struct tar_opened here, above;
    uint64_t opened;
    uint64_t serial;   /* of the directory that was asked for last; 0: root */
    bool case_matters; /* is known of the file system */
    /* Directories that were made on the way, each with a NUL. */
    struct poise_buf implied;
};
void tar_place_init(struct tar_place *place, int root);
void tar_place_free(struct tar_place *place);
/* The directory in which a member's last component lies, made if it is not
 * there and `make`; *last points into `name`, which is changed. Never follows a
 * symbolic link. The descriptor is the place's. Negative errno, recorded. */
int tar_place_open(struct tar_place *place, char *name, bool make,
                   const char **last);
/* A member's name as it is used: without slashes at both ends, "." and "//".
 * 0: it is the destination itself. -EINVAL, recorded: "..", or none. */
int tar_place_name(const char *name, struct poise_buf *out);
/* What `name` leads to (`there`) is called otherwise: the target ignores the
 * case of letters. -EEXIST, recorded for `path`; else 0. */
int tar_place_clash(int dirfd, const char *name, uint64_t ino,
                    const char *path);

#endif
