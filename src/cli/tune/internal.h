/* What the files of poise tune share. */
#ifndef POISE_CLI_TUNE_INTERNAL_H
#define POISE_CLI_TUNE_INTERNAL_H

#include "cli/common/common.h"

#include <poise/tune.h>

/* A trial and what was made of it. */
struct tune_line {
    struct poise_tune_step step; /* its tree is not valid any more */
    struct poise_tune_shares shares;
    char *reason; /* owned */
};

/* What became of a size. */
struct tune_result {
    uint64_t bytes;
    int trees; /* to choose from */
    struct tune_line *lines;
    int line_count;
    double first_ns, best_ns; /* in turn; 0: not compared */
    int trials;
    int *parent; /* [ranks], the best tree's; owned */
    char *file;  /* where it was written; owned; NULL: nowhere */
};

void tune_result_free(struct tune_result *result);
/* One line; `number` from 1. */
void tune_text_line(const struct tune_line *line, int number,
                    struct poise_buf *out);
void tune_text_result(const struct tune_result *result, struct poise_buf *out);
void tune_json(const struct tune_result *results, int count, int ranks,
               enum poise_tune_operation operation, struct poise_buf *out);

#endif
