/*
 * poise/log.h - record logs that are committed atomically.
 */
#ifndef POISE_LOG_H
#define POISE_LOG_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A file of checksummed records that appears whole or not at all, as all
 * outputs do (<poise/output.h>), when commit is called. Layout:
 * docs/formats.md. `magic` is exactly 8 characters and names the kind.
 */
struct poise_log;
int poise_log_create(const char *path, const char *magic, uint32_t version,
                     struct poise_log **out);
/** Any type but UINT32_MAX, any length below 4 GiB, else -EINVAL. After a
 * failure the log only passes its code on. */
int poise_log_append(struct poise_log *log, uint32_t type, const void *data,
                     size_t len);
/** Bytes appended so far, headers included. */
uint64_t poise_log_bytes(const struct poise_log *log);
/** Write the end record, sync, rename. Frees the log in any case; on failure
 * the temporary file is gone and an older file of that name is untouched,
 * unless only the last step failed, to make the new name durable. */
int poise_log_commit(struct poise_log *log);
/** Give up: remove the temporary file, free. NULL is allowed. */
void poise_log_abort(struct poise_log *log);

/** Read back. The whole file is checked when it is opened: -EBADMSG (what is
 * wrong, at which offset) for a truncated or altered one, -EPROTO for another
 * magic or a newer version. */
struct poise_log_reader;
int poise_log_open(const char *path, const char *magic, uint32_t max_version,
                   struct poise_log_reader **out);
/** 1 and the next record (borrowed until the reader's next call), 0 at the
 * end, or negative. */
int poise_log_next(struct poise_log_reader *reader, uint32_t *type,
                   const void **data, size_t *len);
void poise_log_close(struct poise_log_reader *reader);

#ifdef __cplusplus
}
#endif

#endif
