/*
 * poise/checkpoint.h - the files of checkpoints: locked, read and removed.
 */
#ifndef POISE_CHECKPOINT_H
#define POISE_CHECKPOINT_H

#include <poise/task.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Lock a checkpoint: until it is unlocked only the ranks of this job use the
 * files of `checkpoint` and `resume` (each may be NULL). Waits ten seconds for
 * ranks of another job, which may have outlived their launcher, then fails
 * with -EBUSY on all ranks. The lock is the file PATH.lock, which unlocking
 * removes; where it cannot be made, or the file system has no locks, nothing is
 * locked and 0 returned. Collective over `world` (NULL: one process).
 */
int poise_pool_checkpoint_lock(struct poise_world *world,
                               const char *checkpoint, const char *resume,
                               struct poise_checkpoint_lock **out);
/** Unlock; NULL does nothing. Local; once no rank reads or writes the
 * checkpoint. */
void poise_pool_checkpoint_unlock(struct poise_checkpoint_lock *lock);

/** Read the job bytes of a checkpoint without running it; `out` is appended
 * to. Local. */
int poise_pool_checkpoint_job(const char *path, struct poise_buf *out);
/** Remove a checkpoint: commit record, rank files, and what crashes left of
 * older ones (PATH.NUMBER.RANK and temporary files beside it). -ENOENT: there
 * was no commit record; the leftovers are removed all the same. Local. */
POISE_API int poise_pool_checkpoint_remove(const char *path);

#ifdef __cplusplus
}
#endif

#endif
