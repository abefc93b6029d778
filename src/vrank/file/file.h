/*
 * What the end of a job needs to know of files: closing those that are open.
 */
#ifndef POISE_VRANK_FILE_H
#define POISE_VRANK_FILE_H

struct vrank_mpi;

/* Close what the rank left open. */
void files_free(struct vrank_mpi *mpi);

#endif /* POISE_VRANK_FILE_H */
