/*
 * poise/gather.h - the records of other hosts, gathered by a tree.
 *
 * On each host somebody serves the files of a session (or of results) that are
 * there (poise_gather_serve); whoever is above asks as often as it likes, and
 * gets copies that grow (<poise/trace_mirror.h>) beside its own files, under
 * the names that a scope looks for. Since copies are files like any other, they
 * can be served in turn: that is a tree. Nothing is sent that was not asked
 * for, so the pace is that of the front end, and where it is too slow the
 * oldest records are overwritten and counted. Where both ends are sockets their
 * packets ask to be sent behind those of others (DSCP LE, RFC 8622).
 *
 * What goes between the ends is not enciphered: use a pipe through ssh. All
 * functions are local.
 *
 * Source: thesis 7.2, 4.3, 4.4 and 6.2 (gather wrappers with helper threads:
 * sequential and parallel gathering).
 */
#ifndef POISE_GATHER_H
#define POISE_GATHER_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Answer what is asked on `in` to `out`, which are borrowed, until the other
 * end closes: with what is new in the files `path`, `path`.1, ... that are
 * there, also those that come later. 0; -EPROTO: it is no question; errors of
 * reading and writing.
 */
POISE_API int poise_gather_serve(int in, int out, const char *path);

struct poise_gather;

struct poise_gather_options {
    bool parallel;       /**< a helper thread for each child; else one after the
                            other */
    uint64_t timeout_ns; /**< for an answer; 0: 10 s. A child that takes longer
                            is gone */
    uint64_t most_bytes; /**< of each copy; 0: 256 MiB */
};

/** Make copies beside `path`. -ENOMEM. */
POISE_API int poise_gather_create(const char *path,
                                  const struct poise_gather_options *options,
                                  struct poise_gather **out);
/** Copies stay; descriptors of children are closed. NULL is allowed. */
POISE_API void poise_gather_destroy(struct poise_gather *gather);

/** A child: what it sends comes from `in`, questions go to `out` (the same for
 * a socket). Both are the gather's from now on, also if this fails. `name` is
 * for people, copied. -ENOMEM; -EAGAIN: no thread. */
POISE_API int poise_gather_add(struct poise_gather *gather, int in, int out,
                               const char *name);

/** Ask all children for what is new, and put it into the copies: 1 if there is
 * more, 0 if not. `final`: their programs have ended, whatever files say. A
 * child that fails is gone (poise_gather_child). */
POISE_API int poise_gather_poll(struct poise_gather *gather, bool final);

/** What came of a child. */
struct poise_gather_child {
    const char *name; /**< until the gather is destroyed */
    bool gone;
    int code;       /**< why: 0 it closed; -ETIMEDOUT, -EPROTO, ... */
    unsigned files; /**< copies */
    unsigned ended; /**< of which all is here: their programs have ended */
    uint64_t records, lost; /**< lost: overwritten before they were asked for */
    uint64_t bytes;
};
POISE_API unsigned poise_gather_children(const struct poise_gather *gather);
/** -EINVAL: there is no such one. Not while it polls. */
POISE_API int poise_gather_child(const struct poise_gather *gather,
                                 unsigned child,
                                 struct poise_gather_child *out);

#ifdef __cplusplus
}
#endif

#endif
