/* A profile as a page: the tables, and bars for what is seen at a glance. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const time_titles[POISE_VRANK_TIMES] = {
    "computing", "in MPI", "ready", "network", "sync.", "asleep"};

/* One bar for each rank, or for as many as one can look at. */
static int page_ranks(struct poise_page *page,
                      const struct poise_vrank_profile *profile)
{
    enum { MOST = 64, LABEL = 24 };
    int rows = profile->count < MOST ? profile->count : MOST;
    const char *labels[MOST];
    char texts[MOST][LABEL];
    double *values =
        poise_alloc((size_t)rows * POISE_VRANK_TIMES, sizeof *values);

    if (!values) {
        return -1;
    }
    for (int i = 0; i < rows; i++) {
        /* Spread over all of them. */
        int rank = (int)((int64_t)i * profile->count / rows);
        snprintf(texts[i], LABEL, "rank %d", rank);
        labels[i] = texts[i];
        for (int t = 0; t < POISE_VRANK_TIMES; t++) {
            values[i * POISE_VRANK_TIMES + t] =
                (double)profile->ranks[rank].ns[t];
        }
    }
    struct poise_stacks stacks = {.title = "Time of each rank",
                                  .x_label = "time",
                                  .rows = labels,
                                  .series = time_titles,
                                  .values = values,
                                  .row_count = (size_t)rows,
                                  .series_count = POISE_VRANK_TIMES,
                                  .unit = POISE_UNIT_NS};
    int code = poise_page_stacks(page, &stacks);
    free(values);
    return code;
}

static int page_parallelism(struct poise_page *page,
                            const struct poise_vrank_profile *profile)
{
    enum { MOST = 33, LABEL = 12 };
    int count = profile->ranks_most + 1 < MOST ? profile->ranks_most + 1 : MOST;
    const char *labels[MOST];
    char texts[MOST][LABEL];
    double values[MOST] = {0};

    for (int i = 0; i <= profile->ranks_most; i++) {
        values[i < count ? i : count - 1] += (double)profile->runnable_ns[i];
    }
    for (int i = 0; i < count; i++) {
        bool more = i + 1 == count && count <= profile->ranks_most;
        snprintf(texts[i], LABEL, "%d%s", i, more ? "+" : "");
        labels[i] = texts[i];
    }
    struct poise_bars bars = {.title = "How many ranks could run",
                              .x_label = "ranks of a process",
                              .y_label = "time",
                              .labels = labels,
                              .values = values,
                              .count = (size_t)count,
                              .unit = POISE_UNIT_NS};
    return poise_page_bars(page, &bars);
}

static int page_head(struct poise_page *page,
                     const struct poise_vrank_profile *profile)
{
    enum { FIGURES = 4, BYTES = 32 };
    static const char *const labels[FIGURES] = {"time", "processor busy",
                                                "idle", "system"};
    char texts[FIGURES][BYTES];
    const char *values[FIGURES];
    struct cli_profile_sum sum;
    struct poise_buf time = {0};

    cli_profile_add_up(profile, &sum);
    double wall = sum.wall_ns > 0 ? (double)sum.wall_ns : 1;
    poise_human_ns(&time, profile->wall_ns);
    snprintf(texts[0], BYTES, "%s", poise_buf_str(&time));
    snprintf(texts[1], BYTES, "%.1f %%", 100 * (double)sum.busy_ns / wall);
    snprintf(texts[2], BYTES, "%.1f %%", 100 * (double)sum.idle_ns / wall);
    snprintf(texts[3], BYTES, "%.1f %%",
             100 * (double)sum.kernel[POISE_VRANK_SYSTEM_NS] / wall);
    poise_buf_free(&time);
    for (int i = 0; i < FIGURES; i++) {
        values[i] = texts[i];
    }
    return poise_page_figures(page, labels, values, FIGURES);
}

/* The pictures that belong to the first two tables. */
static int page_picture(struct poise_page *page, int table,
                        const struct poise_vrank_profile *profile)
{
    switch (table) {
    case 0:
        return page_ranks(page, profile);
    case 1:
        return page_parallelism(page, profile);
    default:
        return 0;
    }
}

int cli_profile_page(const struct poise_vrank_profile *profile,
                     const struct poise_vrank_profile *against,
                     const char *program, const char *checked,
                     struct poise_buf *out)
{
    struct cli_profile_table tables[CLI_PROFILE_TABLES];
    struct poise_buf title = {0}, head = {0};
    struct poise_page *page = NULL;
    int count =
        cli_profile_tables(profile, against, CLI_PROFILE_PAGE_ROWS, tables);

    if (count < 0) {
        return count;
    }
    poise_buf_printf(&title, "Profile of %s", program);
    cli_profile_head(profile, &head);
    int code =
        poise_page_create(poise_buf_str(&title), poise_buf_str(&head), &page);
    if (code == 0) {
        code = page_head(page, profile);
    }
    for (int i = 0; i < count && code == 0; i++) {
        code = poise_page_section(page, tables[i].title, tables[i].text);
        if (code == 0) {
            code = page_picture(page, i, profile);
        }
        if (code == 0) {
            code = poise_page_table(page, tables[i].table);
        }
    }
    if (code == 0) {
        code = poise_page_html(
            page, &(struct poise_page_run){.checked = checked}, out);
    }
    poise_page_destroy(page);
    cli_profile_tables_free(tables, count);
    poise_buf_free(&title);
    poise_buf_free(&head);
    return code;
}
