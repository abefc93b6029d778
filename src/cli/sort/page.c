/* A sort as a page: phases, what went through the disks against the plan, how
 * fast. */
#include "internal.h"

static int put_head(const struct poise_sort_result *r, uint64_t ns,
                    struct poise_page *page)
{
    struct cli_figures head = {0};

    poise_human_count(cli_figure(&head, "items"), r->items_in);
    poise_human_bytes(cli_figure(&head, "data"), r->bytes_in);
    poise_human_ns(cli_figure(&head, "time"), ns);
    struct poise_buf *speed = cli_figure(&head, "speed");
    poise_human_bytes(
        speed, ns > 0 ? (uint64_t)((double)r->bytes_in / cli_seconds(ns)) : 0);
    poise_buf_puts(speed, "/s");
    poise_human_bytes(cli_figure(&head, "memory allowed for data"),
                      r->memory_bytes);
    poise_human_bytes(cli_figure(&head, "memory of the whole program, most"),
                      cli_memory_peak());
    poise_human_count(cli_figure(&head, "buckets"), r->buckets);
    poise_human_count(cli_figure(&head, "buckets split again"), r->splits);
    return cli_page_figures(page, &head);
}

static int put_disk(const struct poise_sort_result *r, struct poise_page *page)
{
    const struct cli_amount amounts[] = {
        {"input", r->bytes_in},
        {"read, planned", r->planned_read_bytes},
        {"read", r->read_bytes},
        {"written, planned", r->planned_written_bytes},
        {"written", r->written_bytes},
        {"of that, as scratch", r->scratch_bytes},
    };
    int code = poise_page_section(page, "What went through the disks",
                                  "Planned: what the sort takes if keys are "
                                  "spread evenly and all records "
                                  "are kept.");

    code = code ? code
                : cli_page_amounts(page, "Bytes", amounts,
                                   sizeof amounts / sizeof *amounts,
                                   POISE_UNIT_BYTES);
    if (code == 0 && r->packed_bytes > 0) {
        const struct cli_amount packed[] = {{"before", r->unpacked_bytes},
                                            {"after", r->packed_bytes}};

        code = cli_page_amounts(page, "Scratch files that were compressed",
                                packed, 2, POISE_UNIT_BYTES);
    }
    return code;
}

static int put_buckets(const struct poise_sort_result *r,
                       struct poise_page *page)
{
    const struct cli_amount sizes[] = {{"mean", r->mean_bytes},
                                       {"largest", r->largest_bytes}};

    return r->buckets > 1 ? cli_page_amounts(page, "Buckets, by size", sizes, 2,
                                             POISE_UNIT_BYTES)
                          : 0;
}

static int fill(const struct poise_sort_result *r, uint64_t ns,
                const struct cli_series *series, struct poise_page *page)
{
    static const char *const names[] = {"items, read and sorted"};
    uint64_t known = r->sample_ns + r->distribute_ns + r->sort_ns;
    const struct cli_phase phases[] = {
        {"sample", r->sample_ns},
        {"distribute", r->distribute_ns},
        {"sort and write", r->sort_ns},
        {"the rest", ns > known ? ns - known : 0}};
    int code = put_head(r, ns, page);

    code = code ? code : poise_page_section(page, "When what was done", NULL);
    code = code ? code : cli_page_phases(page, phases, 4);
    code = code ? code
                : cli_series_rates(series, page, "Bytes through the sort",
                                   names, 1);
    code = code ? code : put_disk(r, page);
    return code ? code : put_buckets(r, page);
}

int cli_sort_page(const struct poise_sort_result *r, uint64_t ns,
                  const struct cli_series *series, const char *checked,
                  const char *path)
{
    struct poise_buf under = {0};
    struct poise_page *page = NULL;
    int code;

    poise_buf_printf(
        &under,
        "%u process%s of %u thread%s, disk access by %s; page cache bypassed "
        "for input: %s, scratch files: %s, output: %s",
        r->processes, r->processes == 1 ? "" : "es", r->threads,
        r->threads == 1 ? "" : "s", r->engine, r->direct_in ? "yes" : "no",
        r->direct_scratch ? "yes" : "no", r->direct_out ? "yes" : "no");
    code = under.error
               ? under.error
               : poise_page_create("Sort", poise_buf_str(&under), &page);
    poise_buf_free(&under);
    code = code ? code : fill(r, ns, series, page);
    return cli_page_save(page, &(struct poise_page_run){.checked = checked},
                         path, code);
}
