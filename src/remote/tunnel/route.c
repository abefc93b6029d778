/* How connections are cut into segments: as was said for where they go. */
#include "tunnel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "[HOST:PORT=]NAME[,OPTION...]" */
static int parse(const char *text, struct tunnel_way *out)
{
    const char *equals = strchr(text, '='), *comma = strchr(text, ',');
    struct poise_buf copy = {0}, target = {0};
    struct tunnel_name name;
    int err = 0;

    if (equals && (!comma || equals < comma)) {
        err = poise_buf_append(&copy, text, (size_t)(equals - text));
        err = err < 0 ? err : tunnel_name_parse(poise_buf_str(&copy), &name);
        text = equals + 1;
        if (err == 0 && !name.host[0]) {
            err = poise_error_set(EINVAL, "use segmenter", text,
                                  "it is for HOST:PORT");
        }
        if (err == 0) {
            tunnel_name_put(&name, &target);
            out->target = strdup(poise_buf_str(&target));
            err = out->target ? 0 : poise_error_set(ENOMEM, "keep", text, NULL);
        }
    }
    err = err < 0 ? err : poise_dedup_cut_parse(text, &out->method, &out->cut);
    out->samples = err == 0 && strcmp(out->method->name, "auto") == 0;
    poise_buf_free(&copy);
    poise_buf_free(&target);
    return err;
}

int tunnel_ways_create(struct tunnel *tunnel)
{
    const struct poise_remote_tunnel_options *options = &tunnel->options;
    int err = 0;

    tunnel->usual.method = poise_dedup_method_find("gear");
    if (options->segmenter_count == 0) {
        return 0;
    }
    tunnel->ways = poise_alloc(options->segmenter_count, sizeof *tunnel->ways);
    if (!tunnel->ways) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < options->segmenter_count && err == 0; i++) {
        err = parse(options->segmenters[i], &tunnel->ways[tunnel->way_count++]);
    }
    return err;
}

void tunnel_ways_free(struct tunnel *tunnel)
{
    for (size_t i = 0; i < tunnel->way_count; i++) {
        free(tunnel->ways[i].target);
        poise_buf_free(&tunnel->ways[i].sample);
    }
    free(tunnel->ways);
}

struct tunnel_way *tunnel_way_of(struct tunnel *tunnel, const char *target,
                                 size_t len)
{
    struct tunnel_way *found = &tunnel->usual;

    for (size_t i = 0; i < tunnel->way_count; i++) {
        struct tunnel_way *way = &tunnel->ways[i];
        if (!way->target) {
            found = way;
        } else if (strlen(way->target) == len &&
                   memcmp(way->target, target, len) == 0) {
            return way;
        }
    }
    return found;
}

int tunnel_way_sample(struct tunnel_way *way, const void *data, size_t len)
{
    struct poise_dedup_choice choice;
    int err;

    if (!way->samples) {
        return 0;
    }
    err = poise_buf_append(&way->sample, data, len);
    if (err == 0 && way->sample.len >= POISE_DEDUP_SAMPLE) {
        /* The cache has the sample itself by now, as gear cut it. */
        err = poise_dedup_choose(NULL, way->sample.data, way->sample.len,
                                 &way->cut, &choice);
        if (err == 0) {
            way->method = choice.method;
            way->cut = choice.cut;
            way->samples = false;
            poise_buf_free(&way->sample);
        }
    }
    return err;
}
