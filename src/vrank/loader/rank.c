/*
 * The program of one rank, from its constructors to its destructors.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

int load_rank_create(const struct load_program *program, int index, int number,
                     int argc, char *const *argv, struct load_rank *out)
{
    void *data[LIBC_DATA];
    *out = (struct load_rank){.program = program, .argc = argc};
    int code = libc_create(&out->libc, number);
    if (code < 0) {
        return code;
    }
    out->argv = poise_alloc((size_t)argc + 1, sizeof(char *));
    if (out->argv == NULL) {
        return -ENOMEM;
    }
    for (int i = 0; i < argc; i++) {
        out->argv[i] = strdup(argv[i]);
        if (out->argv[i] == NULL) {
            return poise_error_set(ENOMEM, "copy the arguments", NULL, NULL);
        }
    }
    libc_data(&out->libc, data);
    return load_program_images(index, data, out);
}

int load_rank_run(struct load_rank *rank)
{
    for (int i = 0; i < rank->program->count; i++) {
        load_private_construct(&rank->images[i], rank->argc, rank->argv,
                               rank->libc.environment);
    }
    int status = rank->main(rank->argc, rank->argv, rank->libc.environment);
    load_rank_end(rank);
    return status;
}

void load_rank_end(struct load_rank *rank)
{
    if (rank->has_ended) {
        return;
    }
    /* What ends the rank in turn comes back here, and what is left has its
     * turn. */
    libc_handlers_run(&rank->libc);
    while (rank->destructed < rank->program->count) {
        int last = rank->program->count - 1 - rank->destructed;
        load_private_destruct(&rank->images[last]);
        rank->destructed++;
    }
    rank->has_ended = true;
    libc_flush(&rank->libc);
}

void load_rank_leave(struct load_rank *rank)
{
    rank->has_ended = true;
    libc_discard(&rank->libc);
}

void load_rank_free(struct load_rank *rank)
{
    libc_free(&rank->libc);
    free(rank->images);
    for (int i = 0; rank->argv != NULL && rank->argv[i] != NULL; i++) {
        free(rank->argv[i]);
    }
    free(rank->argv);
}
