/*
 * poise/core.h - what every room stands on: errors and the execution context,
 * memory, growable buffers, hashing, random numbers, clocks, JSON, option
 * tables, waiting, files whose faults can be injected, and record logs that
 * are committed atomically.
 *
 * Conventions of the whole library:
 *   - Functions that can fail return 0 or a positive result on success and a
 *     negative errno value on failure. `errno` itself is left undefined.
 *   - Whoever detects an error records it in the execution context
 *     (poise_error_set); everybody above passes the code on silently.
 *   - Output arguments come last and are written only on success.
 *   - Nothing here prints, exits, aborts or installs a signal handler.
 *   - All functions are local (not collective). Handles may be used by one
 *     thread at a time unless their description says otherwise.
 */
#ifndef POISE_CORE_H
#define POISE_CORE_H

#include <endian.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Marks what libpoise exports; everything else is hidden. */
#define POISE_API __attribute__((visibility("default")))
#define POISE_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/** The version of the library in use, "MAJOR.MINOR.PATCH". */
POISE_API const char *poise_version(void);

/* ---- the execution context ---------------------------------------------- */

/**
 * What belongs to one thread of execution: its last error, its random state,
 * its trace ring and its way of waiting. Each kernel thread has one of its
 * own, ready at first use and cleaned at thread exit. A user-level thread that
 * may be resumed on another kernel thread carries its own context and swaps
 * it in whenever it is resumed.
 *
 * A context is used by one thread at a time. Owned by who created it.
 */
struct poise_ctx;

/** A context for a user-level thread; NULL with the error set. Destroy it on
 * the thread where it is in force, or where it is in force nowhere. */
POISE_API struct poise_ctx *poise_ctx_create(void);
POISE_API void poise_ctx_destroy(struct poise_ctx *ctx);

/** The context in force; never NULL: a kernel thread's own needs no memory
 * that could be missing. */
POISE_API struct poise_ctx *poise_ctx_current(void);

/** Put `next` in force on this kernel thread and return the one that was. In
 * both places NULL means the kernel thread's own. */
POISE_API struct poise_ctx *poise_ctx_swap(struct poise_ctx *next);

/** Slots for rooms above core that keep one pointer per context. The context
 * does not own what is stored. */
enum poise_ctx_slot { POISE_CTX_TRACE, POISE_CTX_SLOTS };
POISE_API void *poise_ctx_get(enum poise_ctx_slot slot);
POISE_API void poise_ctx_put(enum poise_ctx_slot slot, void *value);

/**
 * How the current context waits. `yield` is called instead of blocking in
 * the kernel, by every primitive of section "waiting"; NULL restores kernel
 * waiting. For schedulers of user-level threads.
 */
POISE_API void poise_ctx_set_yield(void (*yield)(void *arg), void *arg);

/* ---- errors ------------------------------------------------------------- */

/** The last error of a context. Strings are owned by the context and stay
 * valid until its next error. */
struct poise_error {
    int code;          /**< positive errno value; 0: no error */
    const char *doing; /**< what was being done: "read directory" */
    const char *what;  /**< to what: a path, an option; "" if nothing */
    const char *why;   /**< why it failed: "Permission denied" */
};

/**
 * Record an error in the current context. `doing` is a verb phrase that
 * completes "cannot ..."; `what` may be any bytes up to NUL, of any length,
 * or NULL; `why` is a printf format, or NULL for the text of `code`.
 * Returns -code, so that `return poise_error_set(...)` is the idiom.
 */
POISE_API int poise_error_set(int code, const char *doing, const char *what,
                              const char *why, ...) POISE_PRINTF(4, 5);

POISE_API const struct poise_error *poise_error_last(void);
POISE_API void poise_error_clear(void);

struct poise_buf;
/** Append "cannot DOING 'WHAT': WHY" to `out`, one line whatever WHAT holds:
 * control bytes and invalid UTF-8 are written as \ooo. 0 or -ENOMEM. */
POISE_API int poise_error_format(const struct poise_error *err,
                                 struct poise_buf *out);

/* ---- memory ------------------------------------------------------------- */

/** `count` objects of `size_bytes` each, zeroed, overflow-checked. NULL with
 * the error set when it fails. Free with free(). */
POISE_API void *poise_alloc(size_t count, size_t size_bytes);

/** Resize to `count` objects; new space is not zeroed. On failure returns
 * NULL, sets the error and leaves `ptr` alone. */
POISE_API void *poise_realloc(void *ptr, size_t count, size_t size_bytes);

/** A growable byte buffer. Zero-initialised is empty. Appending to a buffer
 * that failed once does nothing: check `error` at the end, or each call. */
struct poise_buf {
    char *data; /**< owned; NULL while empty; not NUL-terminated */
    size_t len, cap;
    int error; /**< 0 or -ENOMEM, sticky until reset */
};

POISE_API void poise_buf_free(struct poise_buf *buf);
/** Length 0, error cleared, memory kept. */
POISE_API void poise_buf_reset(struct poise_buf *buf);
/** Room for `extra` more bytes; returns where they go, or NULL. */
POISE_API char *poise_buf_reserve(struct poise_buf *buf, size_t extra);
POISE_API int poise_buf_append(struct poise_buf *buf, const void *data,
                               size_t len);
POISE_API int poise_buf_puts(struct poise_buf *buf, const char *text);
POISE_API int poise_buf_putc(struct poise_buf *buf, char c);
POISE_API int poise_buf_printf(struct poise_buf *buf, const char *fmt, ...)
    POISE_PRINTF(2, 3);
/** NUL-terminate (not counted in len) and return data; "" on error. */
POISE_API const char *poise_buf_str(struct poise_buf *buf);
/** Decimal digits of `value`. */
POISE_API int poise_buf_decimal(struct poise_buf *buf, uint64_t value);

/* Numbers in files and messages: little-endian, wherever they lie. */
static inline uint32_t poise_get_u32(const void *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return le32toh(value);
}
static inline uint64_t poise_get_u64(const void *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return le64toh(value);
}
static inline void poise_put_u32(void *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof value);
}
static inline void poise_put_u64(void *to, uint64_t value)
{
    value = htole64(value);
    memcpy(to, &value, sizeof value);
}

/** Fixed 8-byte little-endian; variable length (LEB128); length-prefixed. */
POISE_API int poise_buf_u64(struct poise_buf *buf, uint64_t value);
POISE_API int poise_buf_varint(struct poise_buf *buf, uint64_t value);
POISE_API int poise_buf_blob(struct poise_buf *buf, const void *data,
                             size_t len);

/** Reads back what the last three wrote. Borrowed bytes; a read past the end
 * sets `error` to -EBADMSG (sticky) and returns 0 or NULL. */
struct poise_reader {
    const unsigned char *pos, *end;
    int error;
};
POISE_API struct poise_reader poise_reader_of(const void *data, size_t len);
POISE_API uint64_t poise_reader_u64(struct poise_reader *reader);
POISE_API uint64_t poise_reader_varint(struct poise_reader *reader);
POISE_API const void *poise_reader_blob(struct poise_reader *reader,
                                        size_t *len);
static inline size_t poise_reader_left(const struct poise_reader *reader)
{
    return (size_t)(reader->end - reader->pos);
}

/* ---- hashing and random numbers ----------------------------------------- */

/** A good mixer of 64 bits (bijective). */
static inline uint64_t poise_hash_u64(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}
/** XXH3, 64 bits. The same on every machine: fit for files. */
POISE_API uint64_t poise_hash_bytes(const void *data, size_t len,
                                    uint64_t seed);

/** xoshiro256**; the same sequence for the same seed on every machine. */
struct poise_rng {
    uint64_t s[4];
};
POISE_API void poise_rng_seed(struct poise_rng *rng, uint64_t seed);
POISE_API uint64_t poise_rng_next(struct poise_rng *rng);
/** Uniform in [0, bound), without bias; bound 0 gives 0. */
POISE_API uint64_t poise_rng_below(struct poise_rng *rng, uint64_t bound);
/** The current context's generator, seeded from the system at first use. */
POISE_API struct poise_rng *poise_rng_current(void);

/* ---- clocks ------------------------------------------------------------- */

/** CLOCK_MONOTONIC, in nanoseconds. */
POISE_API uint64_t poise_clock_ns(void);
/** CLOCK_REALTIME, in nanoseconds since 1970 (negative before). */
POISE_API int64_t poise_clock_wall_ns(void);
/** CPU time of the process, in nanoseconds. */
POISE_API uint64_t poise_clock_cpu_ns(void);

/** Cheapest clock of the machine: the invariant TSC where there is one (a few
 * nanoseconds), else CLOCK_MONOTONIC. Ticks count from an unspecified start,
 * alike in all processes of a machine. */
static inline uint64_t poise_clock_ticks(void);
/** Ticks per second, calibrated once per process. */
POISE_API uint64_t poise_clock_tick_hz(void);
POISE_API uint64_t poise_clock_ticks_to_ns(uint64_t ticks);
POISE_API uint64_t poise_clock_ns_to_ticks(uint64_t ns);

/* ---- text for people and for programs ----------------------------------- */

/** "1.5 GiB" (powers of 1024); "12,345,678"; "1 h 02 min", "3.2 s", "85 ms".
 */
POISE_API int poise_human_bytes(struct poise_buf *buf, uint64_t bytes);
POISE_API int poise_human_count(struct poise_buf *buf, uint64_t count);
POISE_API int poise_human_ns(struct poise_buf *buf, uint64_t ns);

/** Length of the longest prefix of `text` that is valid UTF-8 (no surrogates,
 * no overlong forms). */
POISE_API size_t poise_utf8_valid(const void *text, size_t len);

/** Writes one JSON value into a buffer. Keys are literals of the program;
 * pass NULL inside arrays and at the top. Commas and indentation are kept
 * here; `compact` leaves out all white space. */
struct poise_json {
    struct poise_buf *out; /**< borrowed */
    bool compact;
    unsigned depth;
    bool first; /**< nothing written yet at this depth */
};
POISE_API struct poise_json poise_json_to(struct poise_buf *out, bool compact);
POISE_API void poise_json_object(struct poise_json *json, const char *key);
POISE_API void poise_json_end_object(struct poise_json *json);
POISE_API void poise_json_array(struct poise_json *json, const char *key);
POISE_API void poise_json_end_array(struct poise_json *json);
POISE_API void poise_json_u64(struct poise_json *json, const char *key,
                              uint64_t value);
POISE_API void poise_json_i64(struct poise_json *json, const char *key,
                              int64_t value);
/** Not-a-number and infinities are written as null. */
POISE_API void poise_json_double(struct poise_json *json, const char *key,
                                 double value);
POISE_API void poise_json_bool(struct poise_json *json, const char *key,
                               bool value);
POISE_API void poise_json_string(struct poise_json *json, const char *key,
                                 const char *text);
/** Any bytes. Where they are not UTF-8, the invalid ones become U+FFFD and,
 * inside an object, a second member KEY_base64 holds them exactly. */
POISE_API void poise_json_bytes(struct poise_json *json, const char *key,
                                const void *bytes, size_t len);

/* ---- command lines: one table for parser, help, man and completion ------ */

enum poise_option_type {
    POISE_OPTION_END,      /**< ends a table */
    POISE_OPTION_HEADING,  /**< `help` is a section title in --help */
    POISE_OPTION_FLAG,     /**< bool, set to true; --no-NAME clears it */
    POISE_OPTION_INT,      /**< int64_t within [min, max] */
    POISE_OPTION_BYTES,    /**< uint64_t; suffixes K M G T (1024), KB (1000) */
    POISE_OPTION_DURATION, /**< uint64_t nanoseconds; suffixes ns us ms s m h */
    POISE_OPTION_STRING,   /**< const char *, borrowed from argv */
    POISE_OPTION_LIST,     /**< struct poise_strings, appended to, borrowed */
    POISE_OPTION_ENUM,     /**< int, the index into `choices` */
    POISE_OPTION_PRESET,   /**< const char *, set to `arg`; takes no argument:
                                "-k" for "--block-size=1K" */
};

struct poise_strings {
    const char **items; /**< owned array of borrowed strings */
    size_t count;
};

/** Entries that share a letter or a name are all applied, in order: one
 * option can so set several values. */
struct poise_option {
    enum poise_option_type type;
    char letter;                /**< 0: none */
    const char *name;           /**< long name without dashes, NULL: none */
    const char *arg;            /**< how help calls the argument: "FILE" */
    const char *help;           /**< one sentence without the final stop;
                                     NULL: not listed */
    size_t offset;              /**< of the value in the struct parsed into */
    int64_t min, max;           /**< INT only; both 0: any */
    const char *const *choices; /**< ENUM only, NULL-terminated */
};

struct poise_command {
    const char *name;        /**< "walk"; NULL: the program itself */
    const char *operands;    /**< "PATH..." */
    const char *summary;     /**< one line without the final stop */
    const char *description; /**< for --help and the man page: paragraphs
                                  parted by empty lines; those that begin
                                  with a blank keep their lines */
    const struct poise_option *options;
    const char *examples; /**< lines "COMMAND\tWHAT IT DOES\n" */
    const char *exits;    /**< lines "CODE\tMEANING\n" */
};

/**
 * Parse argv[1..argc) into the struct at `into`: long options (with unique
 * abbreviations, "--name=value" and "--name value"), bundled short ones,
 * options after operands, "--". Operands are moved to the end of argv in
 * their order; returns the index of the first. An unknown option is -EINVAL
 * with a message that names it and the nearest known one. Lists are to be
 * freed also after an error.
 */
POISE_API int poise_command_parse(const struct poise_command *command, int argc,
                                  char **argv, void *into);
POISE_API void poise_strings_free(struct poise_strings *strings);

/** --help text of one command, 80 columns. */
POISE_API int poise_command_help(const struct poise_command *command,
                                 struct poise_buf *out);
/** Man page source (mdoc) of one command. */
POISE_API int poise_command_man(const struct poise_command *command,
                                struct poise_buf *out);
/** Completion script for `program` and its `count` subcommands; `shell` is
 * "bash", "zsh" or "fish", else -EINVAL. */
POISE_API int poise_command_completion(const char *program,
                                       const struct poise_command *const *all,
                                       size_t count, const char *shell,
                                       struct poise_buf *out);
/** The candidate nearest to `word` by edit distance, or NULL if none is near
 * enough to be worth suggesting. */
POISE_API const char *
poise_nearest(const char *word, const char *const *candidates, size_t count);

/* The three value parsers, for whoever parses elsewhere. */
POISE_API int poise_parse_int(const char *text, int64_t min, int64_t max,
                              int64_t *out);
POISE_API int poise_parse_bytes(const char *text, uint64_t *out);
POISE_API int poise_parse_duration(const char *text, uint64_t *out_ns);

/* ---- waiting ------------------------------------------------------------ */

/**
 * Something that happens again and again and can be waited for. Threads:
 * any number may wait and signal. Zero-initialised is ready for use.
 *
 *     uint32_t seen = poise_event_seen(&ev);
 *     if (!condition)
 *         poise_event_wait(&ev, seen, timeout_ns);
 */
struct poise_event {
    uint32_t sequence, waiters; /**< __atomic access only */
};
static inline uint32_t poise_event_seen(struct poise_event *event)
{
    return __atomic_load_n(&event->sequence, __ATOMIC_ACQUIRE);
}
/** Wait until the event was signalled since `seen` or the time is over:
 * spins briefly, then sleeps on a futex, or calls the context's yield hook
 * in a loop. UINT64_MAX waits for ever. 0, or -ETIMEDOUT (no error set). May
 * return 0 early, as after a signal handler ran: look at the condition (and
 * at the handler's flag), then wait again. */
POISE_API int poise_event_wait(struct poise_event *event, uint32_t seen,
                               uint64_t timeout_ns);
/** Wake all waiters; cheap (no system call) when there is none. */
POISE_API void poise_event_signal(struct poise_event *event);

/** Tell the processor that the caller spins: some tens of nanoseconds. */
static inline void poise_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#else
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
}

/** Patience for polling what cannot be waited for: first spins, then yields
 * the processor, then sleeps for times that double from min_ns to max_ns. */
struct poise_backoff {
    uint64_t min_ns, max_ns; /**< 0: 20 us and 1 ms */
    unsigned rounds;         /**< set to 0 when something happened */
};
POISE_API void poise_backoff_wait(struct poise_backoff *backoff);
/** Let somebody else run: call the context's hook, or yield the processor.
 * Returns whether there was a hook (who has one must not block in the kernel).
 */
POISE_API bool poise_yield(void);
/** Sleep, or yield until the time is over if the context has a hook. */
POISE_API void poise_sleep_ns(uint64_t ns);

/* ---- faults --------------------------------------------------------------
 *
 * Tests make the k-th call of a kind fail. The environment variable
 * POISE_FAULT="KIND:K[+][:ERRNO|:KILL][,...]" does the same to a whole command,
 * e.g. POISE_FAULT=write:3:ENOSPC; K+ means the K-th call and all later ones.
 * KIND is the name below in lower case; KILL instead of an errno name makes the
 * process kill itself there (SIGKILL), for tests of what a crash leaves behind.
 * Disarmed, a check costs one load.
 */
enum poise_fault {
    POISE_FAULT_ALLOC,
    POISE_FAULT_OPEN,
    POISE_FAULT_READ,
    POISE_FAULT_WRITE,
    POISE_FAULT_SYNC,
    POISE_FAULT_RENAME,
    POISE_FAULT_GETDENTS,
    POISE_FAULT_STAT,
    POISE_FAULT_SEND,
    POISE_FAULT_KINDS
};
/** From now on the k-th call (from 1) of this kind, in any thread, fails with
 * `code`, and so do all later ones if `for_ever`. k = 0 disarms. */
POISE_API void poise_fault_arm(enum poise_fault kind, uint64_t k, int code,
                               bool for_ever);
/** Arm what a text of the form of POISE_FAULT says; the library does so with
 * that variable when it is loaded, ignoring what is wrong. 0, or -EINVAL (the
 * items before the wrong one are armed). */
POISE_API int poise_fault_parse(const char *spec);
/** Calls of this kind since it was armed, until it was disarmed. */
POISE_API uint64_t poise_fault_calls(enum poise_fault kind);
/** 0, or the errno with which this call has to fail. */
POISE_API int poise_fault_check(enum poise_fault kind);

/* ---- files ----------------------------------------------------------------
 *
 * Thin: retry on EINTR, complete short transfers, injectable, errors set with
 * the path. `dirfd` may be AT_FDCWD. All of them are safe in any thread.
 */
POISE_API int poise_file_open(int dirfd, const char *path, int flags,
                              mode_t mode);
/** Close; reports delayed write errors. `path` only names it in the error. */
POISE_API int poise_file_close(int fd, const char *path);
/** All `len` bytes, or the number up to the end of the file. */
POISE_API ssize_t poise_file_read(int fd, void *data, size_t len,
                                  const char *path);
POISE_API ssize_t poise_file_pread(int fd, void *data, size_t len,
                                   uint64_t offset, const char *path);
/** All `len` bytes or an error. */
POISE_API int poise_file_write(int fd, const void *data, size_t len,
                               const char *path);
POISE_API int poise_file_pwrite(int fd, const void *data, size_t len,
                                uint64_t offset, const char *path);
POISE_API int poise_file_sync(int fd, const char *path);
/** Rename within one file system, then make the directory durable. Where only
 * the latter fails the new name is in place. */
POISE_API int poise_file_replace(const char *from, const char *to);

/** Make `data` the contents of `path`, which is the old file or the whole new
 * one at every moment: written as PATH.tmp and renamed. What is there and no
 * regular file (/dev/stdout, a pipe) is written to. 0, `data->error`, or the
 * error, after which no temporary file is left. */
POISE_API int poise_file_save(const char *path, const struct poise_buf *data);
/** Where temporary files belong: $TMPDIR, or /var/tmp. Not for freeing. */
POISE_API const char *poise_file_temporary_folder(void);
/** A file without a name in `folder` (NULL: the above), for reading and
 * writing: nothing is left of it, however the process ends. `flags`: more for
 * open(), such as O_DIRECT. The descriptor, or an error. */
POISE_API int poise_file_nameless(const char *folder, int flags);

/** Wait until the readers of the pipes at stdout and stderr have taken what
 * was written there, at most three seconds. Before a job is aborted: a launcher
 * (MPICH's) drops what it had not read by then. */
POISE_API void poise_file_last_words(void);

/* The two calls of a walk's inner loop: bare but for the fault check, no
 * error is set (errno values are returned negative). */
struct statx;
POISE_API ssize_t poise_file_getdents(int fd, void *buf, size_t len);
POISE_API int poise_file_statx(int dirfd, const char *name, int flags,
                               unsigned mask, struct statx *out);

/* ---- disks ------------------------------------------------------------------
 *
 * Files that are read and written past the page cache, many transfers at a
 * time: through io_uring, or through threads of its own where the kernel has
 * none or forbids it; without O_DIRECT where the file system refuses it. What
 * works is found out by trying, not from versions.
 */

/** Direct transfers have addresses, offsets and lengths that are multiples of
 * this; buffers with fewer, larger pages are twice as fast. */
#define POISE_DISK_ALIGN 4096

enum poise_disk_engine {
    POISE_DISK_AUTO,    /**< io_uring if direct and it works, else threads */
    POISE_DISK_URING,   /**< -ENOSYS where it does not work */
    POISE_DISK_THREADS, /**< a few threads with pread and pwrite */
};

struct poise_disk_options {
    enum poise_disk_engine engine;
    unsigned depth;   /**< transfers on their way at a time; 0: 128 */
    bool buffered;    /**< do not even try O_DIRECT */
    const char *name; /**< of the file in errors; NULL: its path */
};

/** An open file with a queue of transfers. Threads: any number may start
 * transfers and wait for them. */
struct poise_disk;

/** One transfer. Owned by the caller, who leaves it and its data alone until
 * it was waited for. Zero-initialised, then the first four are set. */
struct poise_disk_transfer {
    void *data;
    size_t len; /**< a read may reach past the end of the file */
    uint64_t offset;
    bool is_write;
    /* The queue's own. */
    bool pending;
    int code;
    size_t done;
    struct poise_disk *disk;
    struct poise_disk_transfer *next;
};

/** Open `path` with `flags` as for open(2); O_DIRECT is tried unless
 * options->buffered. `options` may be NULL. */
POISE_API int poise_disk_open(const char *path, int flags, mode_t mode,
                              const struct poise_disk_options *options,
                              struct poise_disk **out);
/** A file without a name in folder `dir`, for reading and writing: nothing is
 * left of it, however the process ends. Errors name the folder. */
POISE_API int poise_disk_scratch(const char *dir,
                                 const struct poise_disk_options *options,
                                 struct poise_disk **out);
/** Waits for what is on its way, then closes. NULL is allowed. */
POISE_API void poise_disk_close(struct poise_disk *disk);
POISE_API int poise_disk_fd(const struct poise_disk *disk);
/** How the file is named in errors. */
POISE_API const char *poise_disk_path(const struct poise_disk *disk);
/** Whether transfers go past the page cache; may become false at the first
 * one. */
POISE_API bool poise_disk_is_direct(const struct poise_disk *disk);
/** "io_uring" or "threads". */
POISE_API const char *poise_disk_engine_name(const struct poise_disk *disk);
/** Bytes moved by transfers that are over. */
POISE_API void poise_disk_count(struct poise_disk *disk, uint64_t *read_bytes,
                                uint64_t *written_bytes);

/** Put a transfer into the queue; it fails, if it does, when it is waited
 * for. */
POISE_API void poise_disk_start(struct poise_disk *disk,
                                struct poise_disk_transfer *transfer);
/** The bytes moved: all of a write; of a read, fewer at the end of the file
 * only. Negative with the error set. A transfer that was never started, or
 * was waited for before, gives 0 at once. */
POISE_API ssize_t poise_disk_wait(struct poise_disk_transfer *transfer);

/** Memory of 2 MiB pages where the system has them, zeroed, aligned to
 * 2 MiB. NULL with the error set. */
POISE_API void *poise_huge_alloc(size_t bytes);
POISE_API void poise_huge_free(void *ptr, size_t bytes);

/** The memory that this process may use: the least of the limits of its
 * control groups (v1 and v2, up to the root), less what they hold that cannot
 * be given back, and of what the machine has available. */
POISE_API uint64_t poise_memory_available(void);
/** Bytes free to this user on the file system of `dir`. */
POISE_API int poise_disk_free_bytes(const char *dir, uint64_t *out);

/* ---- logs --------------------------------------------------------------- */

/**
 * A file of checksummed records that appears whole or not at all: written
 * under a temporary name beside its own, synced, renamed by commit. Layout:
 * docs/formats.md. `magic` is exactly 8 characters and names the kind.
 */
struct poise_log;
POISE_API int poise_log_create(const char *path, const char *magic,
                               uint32_t version, struct poise_log **out);
/** Any type but UINT32_MAX, any length below 4 GiB, else -EINVAL. After a
 * failure the log only passes its code on. */
POISE_API int poise_log_append(struct poise_log *log, uint32_t type,
                               const void *data, size_t len);
/** Bytes appended so far, headers included. */
POISE_API uint64_t poise_log_bytes(const struct poise_log *log);
/** Write the end record, sync, rename. Frees the log in any case; on failure
 * the temporary file is gone and an older file of that name is untouched,
 * unless only the last step failed, to make the new name durable. */
POISE_API int poise_log_commit(struct poise_log *log);
/** Give up: remove the temporary file, free. NULL is allowed. */
POISE_API void poise_log_abort(struct poise_log *log);

/** Read back. The whole file is checked when it is opened: -EBADMSG (what is
 * wrong, at which offset) for a truncated or altered one, -EPROTO for another
 * magic or a newer version. */
struct poise_log_reader;
POISE_API int poise_log_open(const char *path, const char *magic,
                             uint32_t max_version,
                             struct poise_log_reader **out);
/** 1 and the next record (borrowed until the reader's next call), 0 at the
 * end, or negative. */
POISE_API int poise_log_next(struct poise_log_reader *reader, uint32_t *type,
                             const void **data, size_t *len);
POISE_API void poise_log_close(struct poise_log_reader *reader);

/* ---- inline parts ------------------------------------------------------- */

#if defined(__x86_64__)
#define POISE_CLOCK_HAS_TSC 1
#else
#define POISE_CLOCK_HAS_TSC 0
#endif

/** Whether ticks are the TSC (it is invariant). Written before main only. */
POISE_API extern bool poise_clock_has_tsc;

static inline uint64_t poise_clock_ticks(void)
{
#if POISE_CLOCK_HAS_TSC
    if (__builtin_expect(poise_clock_has_tsc, 1)) {
        return __builtin_ia32_rdtsc();
    }
#endif
    return poise_clock_ns();
}

#ifdef __cplusplus
}
#endif

#endif
