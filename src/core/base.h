/*
 * poise/base.h - what everything stands on: errors and the execution context,
 * memory, growable buffers, hashing, random numbers, clocks.
 *
 * Conventions of the whole library:
 *   - A function that can fail returns 0 or a positive result on success and a
 *     negative errno value on failure. `errno` itself is left undefined.
 *   - The function that detects an error records it in the execution context
 *     (poise_error_set); its callers pass the code on silently.
 *   - Output arguments come last and are written only on success.
 *   - Nothing here prints, exits, aborts or installs a signal handler.
 *   - All functions are local (not collective). A handle may be used by one
 *     thread at a time unless its description says otherwise.
 */
#ifndef POISE_BASE_H
#define POISE_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
 * A context is used by one thread at a time. Owned by its creator.
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

/** Texts of others for a terminal: control characters (C0, DEL, C1) and bytes
 * that are not UTF-8 do no harm. Append each of their bytes as \ooo: for
 * messages, which stay on one line. */
POISE_API int poise_buf_escape(struct poise_buf *buf, const char *text,
                               size_t len);
/** The same in place, each as '?', as GNU ls and find do; those in `keep` stay:
 * for results, where stdout is a terminal. */
POISE_API void poise_text_mask(char *text, size_t len, const char *keep);

/* Numbers in files and messages: little-endian, wherever they lie. Not by
 * <endian.h>, which strict C hides. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define POISE_LITTLE_32(value) (value)
#define POISE_LITTLE_64(value) (value)
#else
#define POISE_LITTLE_32(value) __builtin_bswap32(value)
#define POISE_LITTLE_64(value) __builtin_bswap64(value)
#endif
static inline uint32_t poise_get_u32(const void *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return POISE_LITTLE_32(value);
}
static inline uint64_t poise_get_u64(const void *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return POISE_LITTLE_64(value);
}
static inline void poise_put_u32(void *to, uint32_t value)
{
    value = POISE_LITTLE_32(value);
    memcpy(to, &value, sizeof value);
}
static inline void poise_put_u64(void *to, uint64_t value)
{
    value = POISE_LITTLE_64(value);
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

/** Length of the longest prefix of `text` that is valid UTF-8 (no surrogates,
 * no overlong forms). */
POISE_API size_t poise_utf8_valid(const void *text, size_t len);

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

#if defined(__x86_64__)
#define POISE_CLOCK_HAS_TSC 1
#else
#define POISE_CLOCK_HAS_TSC 0
#endif

/** Whether ticks are the TSC (it is invariant). Written before main only. */
POISE_API extern bool poise_clock_has_tsc;

/** Cheapest clock of the machine: the invariant TSC where there is one (a few
 * nanoseconds), else CLOCK_MONOTONIC. Ticks count from an unspecified start,
 * alike in all processes of a machine. */
static inline uint64_t poise_clock_ticks(void)
{
#if POISE_CLOCK_HAS_TSC
    if (__builtin_expect(poise_clock_has_tsc, 1)) {
        return __builtin_ia32_rdtsc();
    }
#endif
    return poise_clock_ns();
}
/** Ticks per second, calibrated once per process. */
POISE_API uint64_t poise_clock_tick_hz(void);
POISE_API uint64_t poise_clock_ticks_to_ns(uint64_t ticks);
POISE_API uint64_t poise_clock_ns_to_ticks(uint64_t ns);

#ifdef __cplusplus
}
#endif

#endif
