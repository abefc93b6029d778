/* The summary of a walk for programs. */
#include "internal.h"

#include <poise/survey.h>

/* Bins of powers of two with something in them. */
static void size_bins(struct poise_json *json, const char *key,
                      const char *count_key, const uint64_t *counts,
                      const uint64_t *bytes, unsigned bins)
{
    poise_json_array(json, key);
    for (unsigned i = 0; i < bins; i++) {
        if (counts[i] == 0) {
            continue;
        }
        poise_json_object(json, NULL);
        poise_json_u64(json, "from", i == 0 ? 0 : cli_bin_limit(i - 1));
        poise_json_u64(json, "below", cli_bin_limit(i));
        poise_json_u64(json, count_key, counts[i]);
        if (bytes) {
            poise_json_u64(json, "bytes", bytes[i]);
        }
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
}

static void age_bins(struct poise_json *json,
                     const struct poise_walk_summary *s)
{
    poise_json_array(json, "ages");
    for (unsigned i = 0; i < POISE_WALK_AGE_BINS; i++) {
        if (s->ages[i] == 0) {
            continue;
        }
        poise_json_object(json, NULL);
        if (i + 1 < POISE_WALK_AGE_BINS) {
            poise_json_u64(json, "below_seconds", poise_walk_age_limits[i]);
        } else {
            poise_json_string(json, "below_seconds", NULL);
        }
        poise_json_u64(json, "files", s->ages[i]);
        poise_json_u64(json, "bytes", s->age_bytes[i]);
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
}

static void depth_bins(struct poise_json *json,
                       const struct poise_walk_summary *s)
{
    poise_json_array(json, "depths");
    for (unsigned i = 0; i < POISE_WALK_DEPTH_BINS; i++) {
        if (s->depths[i] > 0) {
            poise_json_object(json, NULL);
            poise_json_u64(json, "depth", i);
            poise_json_bool(json, "or_more", i + 1 == POISE_WALK_DEPTH_BINS);
            poise_json_u64(json, "entries", s->depths[i]);
            poise_json_end_object(json);
        }
    }
    poise_json_end_array(json);
}

static void named(struct poise_json *json, const char *key,
                  const char *value_key, const struct poise_walk_named *items,
                  size_t count)
{
    poise_json_array(json, key);
    for (size_t i = 0; i < count; i++) {
        poise_json_object(json, NULL);
        poise_json_bytes(json, "path", items[i].path, items[i].path_len);
        poise_json_u64(json, value_key, items[i].value);
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
}

static void owners(struct poise_json *json, const struct poise_walk_summary *s)
{
    poise_json_array(json, "owners");
    for (size_t i = 0; i < s->owner_count; i++) {
        struct poise_buf name = {0};

        cli_owner_name(s->owners[i].uid, &name);
        poise_json_object(json, NULL);
        poise_json_u64(json, "uid", s->owners[i].uid);
        poise_json_bytes(json, "name", name.data, name.len);
        poise_json_u64(json, "entries", s->owners[i].entries);
        poise_json_u64(json, "allocated_bytes", s->owners[i].allocated_bytes);
        poise_json_end_object(json);
        json->out->error = json->out->error ? json->out->error : name.error;
        poise_buf_free(&name);
    }
    poise_json_end_array(json);
}

static void metadata(struct poise_json *json,
                     const struct poise_walk_summary *s)
{
    poise_json_u64(json, "apparent_bytes", s->apparent_bytes);
    poise_json_u64(json, "allocated_bytes", s->allocated_bytes);
    poise_json_u64(json, "linked_entries", s->linked_entries);
    size_bins(json, "sizes", "files", s->sizes, s->size_bytes,
              POISE_WALK_SIZE_BINS);
    age_bins(json, s);
    named(json, "largest_files", "bytes", s->files, s->file_count);
    owners(json, s);
    depth_bins(json, s);
    size_bins(json, "widths", "directories", s->widths, NULL,
              POISE_WALK_WIDTH_BINS);
    poise_json_u64(json, "deepest", s->deepest);
    poise_json_u64(json, "widest", s->widest);
    named(json, "widest_directories", "entries", s->directories,
          s->directory_count);
}

static void pair_row(struct poise_json *json, const char *key,
                     const uint64_t *values, int size)
{
    poise_json_array(json, key);
    for (int i = 0; values && i < size; i++) {
        poise_json_u64(json, NULL, values[i]);
    }
    poise_json_end_array(json);
}

static void one_rank(struct poise_json *json, const struct poise_pool_stats *s,
                     const struct poise_walk_profile *profile)
{
    struct poise_worker_stats all = {0};

    for (unsigned i = 0; i < s->worker_count; i++) {
        all.tasks += s->workers[i].tasks;
        all.stolen += s->workers[i].stolen;
        all.busy_ns += s->workers[i].busy_ns;
    }
    poise_json_object(json, NULL);
    poise_json_i64(json, "rank", s->rank);
    poise_json_u64(json, "tasks", all.tasks);
    poise_json_u64(json, "stolen", all.stolen);
    poise_json_u64(json, "busy_ns", all.busy_ns);
    if (profile) {
        poise_json_u64(json, "readdir_ns", profile->readdir_ns);
        poise_json_u64(json, "stat_ns", profile->stat_ns);
        poise_json_u64(json, "callback_ns", profile->visit_ns);
        poise_json_u64(json, "communication_ns", profile->comm_ns);
        poise_json_u64(json, "idle_ns", profile->idle_ns);
        poise_json_u64(json, "other_ns", profile->other_ns);
    }
    poise_json_u64(json, "steal_asked", s->steal_asked);
    poise_json_u64(json, "steal_got", s->steal_got);
    poise_json_u64(json, "steal_refused", s->steal_refused);
    poise_json_u64(json, "tasks_given", s->tasks_given);
    poise_json_u64(json, "spilled_tasks", s->spilled_tasks);
    poise_json_u64(json, "spilled_bytes", s->spilled_bytes);
    poise_json_u64(json, "token_rounds", s->token_rounds);
    poise_json_u64(json, "checkpoints", s->checkpoints);
    poise_json_u64(json, "active_most", s->active_most);
    pair_row(json, "messages_to", s->messages, s->size);
    pair_row(json, "bytes_to", s->bytes, s->size);
    poise_json_end_object(json);
}

static void ranks(struct poise_json *json, const struct poise_walk_result *r)
{
    uint64_t messages = 0, bytes = 0;

    for (int i = 0; r->stats && i < r->size; i++) {
        for (int k = 0; r->stats[i].messages && k < r->stats[i].size; k++) {
            messages += r->stats[i].messages[k];
            bytes += r->stats[i].bytes[k];
        }
    }
    poise_json_u64(json, "messages", messages);
    poise_json_u64(json, "bytes", bytes);
    poise_json_array(json, "profile");
    for (int i = 0; r->stats && i < r->size; i++) {
        one_rank(json, &r->stats[i], r->profiles ? &r->profiles[i] : NULL);
    }
    poise_json_end_array(json);
}

int cli_walk_json(const struct cli_walk_outcome *walk, struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);
    const struct poise_walk_summary *s = walk->summary;

    cli_json_begin(&json, "poise-walk-1");
    poise_json_u64(&json, "entries", s->entries);
    for (unsigned i = 0; i < POISE_WALK_TYPES; i++) {
        poise_json_u64(&json, poise_walk_type_names[i], s->types[i]);
    }
    if (s->with_metadata) {
        metadata(&json, s);
    }
    poise_json_u64(&json, "errors", walk->result->errors);
    poise_json_bool(&json, "interrupted", walk->interrupted);
    poise_json_u64(&json, "wall_ns", walk->result->wall_ns);
    poise_json_u64(&json, "startup_ns", walk->startup_ns);
    poise_json_string(&json, "world", walk->world_name);
    poise_json_i64(&json, "ranks", walk->ranks);
    poise_json_u64(&json, "threads", walk->threads);
    poise_json_string(&json, "policy", walk->policy);
    poise_json_string(&json, "split", walk->split);
    ranks(&json, walk->result);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
    return out->error;
}
