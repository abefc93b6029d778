/*
 * What a checkpoint says of the walk that wrote it: the user's bytes, the
 * working directory from which relative names lead ("" if there are none), and
 * what is walked and how.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool job_has_relative_names(const struct poise_walk_options *options)
{
    bool any = options->resume_here;
    for (size_t i = 0; i < options->root_count; i++) {
        any |= options->roots[i][0] != '/' ||
               (options->counterparts && options->counterparts[i][0] != '/');
    }
    return any;
}

/* Whether `place` is where this process works, whatever it is called there. */
static bool job_is_here(const char *place)
{
    struct stat there, here;
    return stat(place, &there) == 0 && stat(".", &here) == 0 &&
           there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

/* The job of a checkpoint, whose names must lead to the same files from here:
 * its bytes, of which the user's are a part, and its working directory. */
static int job_read(const char *path, struct poise_buf *bytes,
                    const char **user, size_t *user_len,
                    struct poise_buf *place)
{
    size_t len = 0;
    int code = poise_pool_checkpoint_job(path, bytes);
    if (code < 0) {
        return code;
    }
    struct poise_reader in = poise_reader_of(bytes->data, bytes->len);
    *user = poise_reader_blob(&in, user_len);
    const char *from = poise_reader_blob(&in, &len);
    if (in.error) {
        return poise_error_set(EBADMSG, "read checkpoint", path,
                               "it is not one of a walk");
    }
    code = poise_buf_append(place, from, len);
    const char *name = poise_buf_str(place);
    code = code < 0 ? code : place->error;
    if (code == 0 && len > 0 && !job_is_here(name)) {
        code = poise_error_set(EINVAL, "resume", path,
                               "it has relative names, of files below '%s': "
                               "resume it in that directory",
                               name);
    }
    return code;
}

int poise_walk_checkpoint_job(const char *path, struct poise_buf *out)
{
    struct poise_buf bytes = {0}, place = {0};
    const char *user;
    size_t len;
    int code = job_read(path, &bytes, &user, &len, &place);
    if (code == 0) {
        code = poise_buf_append(out, user, len);
    }
    poise_buf_free(&bytes);
    poise_buf_free(&place);
    return code;
}

/* Where names lead from: of a job that goes on, what it said itself. */
static int job_place(const struct poise_walk_options *options,
                     struct poise_buf *place)
{
    struct poise_buf bytes = {0};
    const char *user;
    size_t len;
    int code = 0;
    if (options->pool.resume) {
        code = job_read(options->pool.resume, &bytes, &user, &len, place);
        poise_buf_free(&bytes);
    } else if (options->pool.checkpoint && job_has_relative_names(options)) {
        char *here = getcwd(NULL, 0);
        code = here ? poise_buf_puts(place, here)
                    : poise_error_set(errno, "find the working directory",
                                      options->pool.checkpoint, NULL);
        free(here);
    }
    return code;
}

int walk_job_write(const struct walk *walk, struct poise_buf *job)
{
    const struct poise_walk_options *options = &walk->options;
    struct poise_buf place = {0};
    int code = job_place(options, &place);
    if (code < 0) {
        poise_buf_free(&place);
        return code;
    }
    poise_buf_blob(job, options->pool.job,
                   options->pool.job ? options->pool.job_bytes : 0);
    poise_buf_blob(job, place.data, place.len);
    poise_buf_free(&place);
    poise_buf_varint(job, options->statx_mask);
    poise_buf_varint(job, options->one_file_system);
    poise_buf_varint(job, options->max_depth);
    poise_buf_varint(job, options->max_depth_is_zero);
    poise_buf_varint(job, options->follow);
    poise_buf_varint(job, walk->single_entries);
    poise_buf_varint(job, options->root_count);
    for (size_t i = 0; i < options->root_count; i++) {
        poise_buf_blob(job, options->roots[i], strlen(options->roots[i]));
    }
    if (options->post) {
        poise_buf_varint(job, options->post);
        poise_buf_varint(job, options->chunk_bytes);
    }
    for (size_t i = 0; options->counterparts && i < options->root_count; i++) {
        const char *counterpart = options->counterparts[i];
        poise_buf_blob(job, counterpart, strlen(counterpart));
    }
    return job->error;
}
