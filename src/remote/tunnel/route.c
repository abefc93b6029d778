/* How connections are cut into segments: as was said for where they go. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "[HOST:PORT=]NAME[,OPTION...]" */
static int parse(const char *text, struct tunnel_way *out)
{
    const char *equals = strchr(text, '='), *comma = strchr(text, ',');
    struct poise_buf copy = {0}, target = {0};
    struct tunnel_name name;
    int code = 0;

    if (equals && (!comma || equals < comma)) {
        code = poise_buf_append(&copy, text, (size_t)(equals - text));
        code = code < 0 ? code : tunnel_name_parse(poise_buf_str(&copy), &name);
        text = equals + 1;
        if (code == 0 && !name.host[0]) {
            code = poise_error_set(EINVAL, "use segmenter", text,
                                   "it is for HOST:PORT");
        }
        if (code == 0) {
            tunnel_name_put(&name, &target);
            out->target = strdup(poise_buf_str(&target));
            code =
                out->target ? 0 : poise_error_set(ENOMEM, "keep", text, NULL);
        }
    }
    code =
        code < 0 ? code : poise_dedup_cut_parse(text, &out->method, &out->cut);
    out->samples = code == 0 && strcmp(out->method->name, "auto") == 0;
    poise_buf_free(&copy);
    poise_buf_free(&target);
    return code;
}

int tunnel_ways_create(struct tunnel *tunnel)
{
    const struct poise_remote_tunnel_options *options = &tunnel->options;
    int code = 0;

    tunnel->usual.method = poise_dedup_method_find("gear");
    if (options->segmenter_count == 0) {
        return 0;
    }
    tunnel->ways = poise_alloc(options->segmenter_count, sizeof *tunnel->ways);
    if (!tunnel->ways) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < options->segmenter_count && code == 0; i++) {
        code =
            parse(options->segmenters[i], &tunnel->ways[tunnel->way_count++]);
    }
    return code;
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
    int code;

    if (!way->samples) {
        return 0;
    }
    code = poise_buf_append(&way->sample, data, len);
    if (code == 0 && way->sample.len >= POISE_DEDUP_SAMPLE) {
        /* The cache has the sample itself by now, as gear cut it. */
        code = poise_dedup_choose(NULL, way->sample.data, way->sample.len,
                                  &way->cut, &choice);
        if (code == 0) {
            way->method = choice.method;
            way->cut = choice.cut;
            way->samples = false;
            poise_buf_free(&way->sample);
        }
    }
    return code;
}
