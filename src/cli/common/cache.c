/* What the pages of send and tunnel have in common. */
#include "cache.h"

int cli_cache_ways(struct poise_page *page,
                   const struct poise_dedup_peer_stats *stats)
{
    const struct cli_amount ways[] = {{"references", stats->by_run},
                                      {"fingerprints", stats->by_fingerprint},
                                      {"changes", stats->by_delta},
                                      {"floats, changed", stats->by_residual},
                                      {"repetitions", stats->by_fill},
                                      {"as they are", stats->by_data}};

    return cli_page_amounts(page, "Bytes", ways, sizeof ways / sizeof *ways,
                            POISE_UNIT_BYTES);
}

int cli_cache_course(struct poise_page *page, const struct cli_series *series)
{
    static const char *const names[] = {"data", "on the link"};
    int code;

    if (series->count < 3) {
        return 0;
    }
    code = poise_page_section(page, "Over the time", NULL);
    code = code ? code
                : cli_series_rates(series, page, "Both directions", names, 2);
    return code ? code
                : cli_series_ratio(series, page,
                                   "Bytes of data for each on the link, so far",
                                   0, 1);
}

void cli_cache_ratio(struct poise_buf *out, uint64_t link, uint64_t data)
{
    poise_human_bytes(out, link);
    poise_buf_puts(out, " for ");
    poise_human_bytes(out, data);
    if (link > 0) {
        poise_buf_printf(out, " (%.1f:1)", (double)data / (double)link);
    }
}
