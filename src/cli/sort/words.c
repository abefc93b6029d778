/* What poise sort says of what it did and found. */
#include "internal.h"

static double times(uint64_t bytes, uint64_t data)
{
    return data > 0 ? (double)bytes / (double)data : 0;
}

/* "1 bucket", "2 buckets" */
static void put_count(struct poise_buf *out, uint64_t count, const char *what)
{
    poise_buf_printf(out, "%llu %s%s", (unsigned long long)count, what,
                     count == 1 ? "" : "s");
}

static void plan_json(const struct poise_sort_forecast *plan,
                      struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    cli_json_begin(&json, "poise-sort-plan-1");
    poise_json_u64(&json, "bytes_in", plan->bytes_in);
    poise_json_u64(&json, "read_bytes", plan->read_bytes);
    poise_json_u64(&json, "written_bytes", plan->written_bytes);
    poise_json_u64(&json, "scratch_bytes", plan->scratch_bytes);
    poise_json_double(&json, "disk_seconds", plan->disk_seconds);
    poise_json_u64(&json, "memory_bytes", plan->memory_bytes);
    poise_json_u64(&json, "processes", plan->processes);
    poise_json_u64(&json, "threads", plan->threads);
    poise_json_u64(&json, "buckets", plan->buckets);
    poise_json_u64(&json, "rounds", plan->rounds);
    poise_json_u64(&json, "block_bytes", plan->block_bytes);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

static void put_plan(const struct poise_sort_forecast *plan,
                     struct poise_buf *out)
{
    poise_human_bytes(out, plan->bytes_in);
    poise_buf_printf(out, " would be read %.2f times and written %.2f times",
                     times(plan->read_bytes, plan->bytes_in),
                     times(plan->written_bytes, plan->bytes_in));
    if (plan->disk_seconds > 0) {
        poise_buf_printf(out, ", for which the disk takes about %.*f s",
                         plan->disk_seconds < 10 ? 1 : 0, plan->disk_seconds);
    }
    poise_buf_puts(out, "\nscratch files take ");
    poise_human_bytes(out, plan->scratch_bytes);
    poise_buf_puts(out, ", memory ");
    poise_human_bytes(out, plan->memory_bytes);
    poise_buf_puts(out, ": ");
    put_count(out, plan->buckets, "bucket");
    if (plan->rounds > 0) {
        poise_buf_puts(out, ", parted ");
        put_count(out, plan->rounds, "time");
        poise_buf_puts(out, " more");
    }
    poise_buf_puts(out, ", blocks of ");
    poise_human_bytes(out, plan->block_bytes);
    poise_buf_puts(out, ", ");
    put_count(out, plan->threads, "thread");
    poise_buf_putc(out, '\n');
}

int cli_sort_plan(const struct poise_sort_forecast *plan, bool as_json)
{
    struct poise_buf out = {0};
    int status;

    (as_json ? plan_json : put_plan)(plan, &out);
    status = cli_write("sort", &out);
    poise_buf_free(&out);
    return status;
}

void cli_sort_verbose(const struct poise_sort_result *r, uint64_t ns,
                      struct poise_buf *out)
{
    poise_buf_puts(out, "poise sort: ");
    poise_human_count(out, r->items_in);
    poise_buf_puts(out, " items, ");
    poise_human_bytes(out, r->bytes_in);
    poise_buf_printf(out, " in %.2f s (%.0f MB/s)\n", cli_seconds(ns),
                     (double)r->bytes_in / cli_seconds(ns ? ns : 1) / 1e6);
    poise_buf_printf(out, "  sample %.2f s, distribute %.2f s, sort %.2f s\n",
                     cli_seconds(r->sample_ns), cli_seconds(r->distribute_ns),
                     cli_seconds(r->sort_ns));
    poise_buf_puts(out, "  memory ");
    poise_human_bytes(out, r->memory_bytes);
    if (r->processes > 1) {
        poise_buf_printf(out, ", %u processes", r->processes);
    }
    poise_buf_puts(out, ", ");
    put_count(out, r->threads, "thread");
    poise_buf_puts(out, ", ");
    put_count(out, r->buckets, "bucket");
    poise_buf_printf(out,
                     " (largest %.2f of the "
                     "mean, %llu split), blocks of ",
                     r->mean_bytes > 0
                         ? (double)r->largest_bytes / (double)r->mean_bytes
                         : 0.0,
                     (unsigned long long)r->splits);
    poise_human_bytes(out, r->block_bytes);
    poise_buf_puts(out, "\n  read ");
    poise_human_bytes(out, r->read_bytes);
    poise_buf_puts(out, ", written ");
    poise_human_bytes(out, r->written_bytes);
    poise_buf_puts(out, " (scratch ");
    poise_human_bytes(out, r->scratch_bytes);
    if (r->packed_bytes > 0) {
        poise_buf_puts(out, ", of which ");
        poise_human_bytes(out, r->packed_bytes);
        poise_buf_puts(out, " were ");
        poise_human_bytes(out, r->unpacked_bytes);
        poise_buf_puts(out, " before they were compressed");
    }
    if (r->in_output) {
        poise_buf_puts(out, ", in the space of the output");
    }
    poise_buf_printf(out,
                     "; planned %.2f and %.2f times the input, came to %.2f "
                     "and %.2f",
                     times(r->planned_read_bytes, r->bytes_in),
                     times(r->planned_written_bytes, r->bytes_in),
                     times(r->read_bytes, r->bytes_in),
                     times(r->written_bytes, r->bytes_in));
    poise_buf_printf(out,
                     ") by %s; past the page cache: input %s, scratch %s, "
                     "output %s\n",
                     r->engine, r->direct_in ? "yes" : "no",
                     r->direct_scratch ? "yes" : "no",
                     r->direct_out ? "yes" : "no");
}

void cli_sort_json(const struct poise_sort_result *r, uint64_t ns,
                   struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    cli_json_begin(&json, "poise-sort-1");
    poise_json_u64(&json, "items_in", r->items_in);
    poise_json_u64(&json, "items_out", r->items_out);
    poise_json_u64(&json, "bytes_in", r->bytes_in);
    poise_json_u64(&json, "bytes_out", r->bytes_out);
    poise_json_double(&json, "seconds", cli_seconds(ns));
    poise_json_double(&json, "sample_seconds", cli_seconds(r->sample_ns));
    poise_json_double(&json, "distribute_seconds",
                      cli_seconds(r->distribute_ns));
    poise_json_double(&json, "sort_seconds", cli_seconds(r->sort_ns));
    poise_json_u64(&json, "memory_bytes", r->memory_bytes);
    poise_json_u64(&json, "processes", r->processes);
    poise_json_u64(&json, "threads", r->threads);
    poise_json_u64(&json, "buckets", r->buckets);
    poise_json_u64(&json, "largest_bucket_bytes", r->largest_bytes);
    poise_json_u64(&json, "mean_bucket_bytes", r->mean_bytes);
    poise_json_u64(&json, "splits", r->splits);
    poise_json_u64(&json, "block_bytes", r->block_bytes);
    poise_json_u64(&json, "read_bytes", r->read_bytes);
    poise_json_u64(&json, "written_bytes", r->written_bytes);
    poise_json_u64(&json, "planned_read_bytes", r->planned_read_bytes);
    poise_json_u64(&json, "planned_written_bytes", r->planned_written_bytes);
    poise_json_u64(&json, "scratch_bytes", r->scratch_bytes);
    poise_json_bool(&json, "scratch_in_output", r->in_output);
    poise_json_u64(&json, "moved_bytes", r->moved_bytes);
    poise_json_u64(&json, "packed_bytes", r->packed_bytes);
    poise_json_u64(&json, "unpacked_bytes", r->unpacked_bytes);
    poise_json_string(&json, "io", r->engine);
    poise_json_bool(&json, "direct_in", r->direct_in);
    poise_json_bool(&json, "direct_scratch", r->direct_scratch);
    poise_json_bool(&json, "direct_out", r->direct_out);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

static void put_report(const struct poise_sort_report *report, bool as_json,
                       struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    if (as_json) {
        cli_json_begin(&json, "poise-sort-check-1");
        poise_json_u64(&json, "items", report->items);
        poise_json_u64(&json, "bytes", report->bytes);
        cli_json_hash(&json, "checksum", report->checksum);
        poise_json_u64(&json, "duplicates", report->duplicates);
        poise_json_bool(&json, "sorted", report->sorted);
        if (!report->sorted) {
            poise_json_u64(&json, "first_unsorted", report->first_unsorted);
        }
        poise_json_end_object(&json);
        poise_buf_putc(out, '\n');
        return;
    }
    poise_buf_printf(
        out, "items      %llu\nchecksum   %016llx\nduplicates %llu\n",
        (unsigned long long)report->items, (unsigned long long)report->checksum,
        (unsigned long long)report->duplicates);
    if (report->sorted) {
        poise_buf_puts(out, "sorted     yes\n");
    } else {
        poise_buf_printf(out,
                         "sorted     no: item %llu is less than its "
                         "predecessor\n",
                         (unsigned long long)report->first_unsorted);
    }
}

int cli_sort_report(const struct poise_sort_report *report, bool as_json)
{
    struct poise_buf out = {0};
    int status;

    put_report(report, as_json, &out);
    status = cli_write("sort", &out);
    poise_buf_free(&out);
    return status;
}
