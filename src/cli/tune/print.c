/* What poise tune says: each step, the result of a size, all of it as JSON. */
#include "internal.h"

#include <stdlib.h>

void tune_result_free(struct tune_result *result)
{
    for (int i = 0; i < result->line_count; i++) {
        free(result->lines[i].reason);
    }
    free(result->lines);
    free(result->parent);
    free(result->file);
    *result = (struct tune_result){0};
}

static void put_ns(struct poise_buf *out, double ns)
{
    if (ns < 1e6) {
        poise_buf_printf(out, "%.1f us", ns / 1e3);
    } else {
        poise_buf_printf(out, "%.2f ms", ns / 1e6);
    }
}

static double percent(double part, const struct poise_tune_shares *shares)
{
    double all = shares->arrival_ns + shares->reduce_ns + shares->broadcast_ns;
    return all > 0 ? 100 * part / all : 0;
}

void tune_text_line(const struct tune_line *line, int number,
                    struct poise_buf *out)
{
    const struct poise_tune_shares *shares = &line->shares;
    poise_buf_printf(out, "%3d  ", number);
    put_ns(out, line->step.call_ns);
    poise_buf_printf(out,
                     " a call (arrival %.0f %%, reduce %.0f %%, broadcast "
                     "%.0f %%)%s%s",
                     percent(shares->arrival_ns, shares),
                     percent(shares->reduce_ns, shares),
                     percent(shares->broadcast_ns, shares),
                     line->reason[0] ? "; " : "", line->reason);
    if (line->step.is_new && line->step.expected_ns > 0) {
        poise_buf_puts(out, "; next one expected to take ");
        put_ns(out, line->step.expected_ns);
    }
    poise_buf_putc(out, '\n');
}

void tune_text_result(const struct tune_result *result, struct poise_buf *out)
{
    poise_human_bytes(out, result->bytes);
    poise_buf_puts(out, ": ");
    put_ns(out, result->best_ns);
    poise_buf_printf(out, " a call over the best of %d tree%s, ",
                     result->trials, &"s"[result->trials == 1]);
    put_ns(out, result->first_ns);
    poise_buf_printf(out,
                     " over the first one, measured in turn: %.2f times "
                     "as fast",
                     result->best_ns > 0 ? result->first_ns / result->best_ns
                                         : 1);
    if (result->file) {
        poise_buf_printf(out, "; in %s", result->file);
    }
    poise_buf_puts(out, "\n\n");
}

static void json_line(const struct tune_line *line, struct poise_json *json)
{
    poise_json_object(json, NULL);
    poise_json_double(json, "call_ns", line->step.call_ns);
    poise_json_double(json, "expected_ns", line->step.expected_ns);
    poise_json_string(json, "cause", poise_tune_cause_name(line->step.cause));
    poise_json_string(json, "reason", line->reason);
    poise_json_bool(json, "new_tree", line->step.is_new);
    poise_json_bool(json, "settled", line->step.is_settled);
    poise_json_bool(json, "changed", line->step.has_changed);
    poise_json_double(json, "arrival",
                      percent(line->shares.arrival_ns, &line->shares) / 100);
    poise_json_double(json, "reduce",
                      percent(line->shares.reduce_ns, &line->shares) / 100);
    poise_json_double(json, "broadcast",
                      percent(line->shares.broadcast_ns, &line->shares) / 100);
    poise_json_end_object(json);
}

void tune_json(const struct tune_result *results, int count, int ranks,
               enum poise_tune_operation operation, struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);
    cli_json_begin(&json, "poise-tune-1");
    poise_json_array(&json, "sizes");
    for (int i = 0; i < count; i++) {
        const struct tune_result *result = &results[i];
        poise_json_object(&json, NULL);
        poise_json_string(&json, "operation",
                          poise_tune_operation_name(operation));
        poise_json_u64(&json, "bytes", result->bytes);
        poise_json_u64(&json, "ranks", (uint64_t)ranks);
        poise_json_u64(&json, "trees", (uint64_t)result->trees);
        poise_json_u64(&json, "trials", (uint64_t)result->trials);
        poise_json_double(&json, "first_ns", result->first_ns);
        poise_json_double(&json, "best_ns", result->best_ns);
        poise_json_array(&json, "steps");
        for (int k = 0; k < result->line_count; k++) {
            json_line(&result->lines[k], &json);
        }
        poise_json_end_array(&json);
        poise_json_array(&json, "parents");
        for (int rank = 0; rank < ranks && result->parent; rank++) {
            poise_json_i64(&json, NULL, result->parent[rank]);
        }
        poise_json_end_array(&json);
        poise_json_end_object(&json);
    }
    poise_json_end_array(&json);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}
