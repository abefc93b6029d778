/*
 * poise/trace_mirror.h - a trace copied to another machine as it grows.
 *
 * A feed takes what is new in a trace's file, as bytes; a mirror makes a file
 * of them that reads like the first one: the same head, clocks and collectors,
 * and rings of the same size, whose records are numbered from 0 anew, without
 * those that were overwritten before the feed came to them, which it counts. A
 * mirror is written as a trace is, so it may be read, or fed on, meanwhile.
 * Both ends have the same byte order. A mirror believes nothing: bytes that are
 * none of a feed's are refused, and it never grows beyond its limit.
 *
 * All functions are local; a feed or mirror is used by one thread at a time.
 */
#ifndef POISE_TRACE_MIRROR_H
#define POISE_TRACE_MIRROR_H

#include <poise/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_trace_feed;

/** Errors of poise_trace_open. */
int poise_trace_feed_open(const char *path, struct poise_trace_feed **out);
void poise_trace_feed_close(struct poise_trace_feed *feed);
/** Append what is new, records up to some `most_bytes`: 1 if there is more, 0
 * if not; negative. `final`: the writer is gone, whatever the file says. */
int poise_trace_feed_take(struct poise_trace_feed *feed, bool final,
                          size_t most_bytes, struct poise_buf *out);

struct poise_trace_mirror;

/** A file at `path`, which must not exist and appears with the first bytes. It
 * is at most `most_bytes` large; 0: 256 MiB. -ENOMEM. */
int poise_trace_mirror_open(const char *path, uint64_t most_bytes,
                            struct poise_trace_mirror **out);
/** The file stays. NULL is allowed. */
void poise_trace_mirror_close(struct poise_trace_mirror *mirror);
/** Put in what a feed took, whole takes in order. -EPROTO: it is not of a feed;
 * -EFBIG: beyond the limit; -ENOSPC; -EEXIST. Nothing goes in after an error.
 */
int poise_trace_mirror_put(struct poise_trace_mirror *mirror, const void *bytes,
                           size_t len);
/** Whether the writer ended, and all that it wrote is here. */
bool poise_trace_mirror_ended(const struct poise_trace_mirror *mirror);
/** Records that are in it, and those that the feed came too late for. */
void poise_trace_mirror_counts(const struct poise_trace_mirror *mirror,
                               uint64_t *records, uint64_t *lost);

#ifdef __cplusplus
}
#endif

#endif
