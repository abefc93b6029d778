/* Segmenters in a shared object, as a user would write them: lines, and with
 * an average of 13 a wrong one, which cuts more than there is. */
#include <poise/dedup.h>

#include <stdlib.h>
#include <string.h>

static int create(const struct poise_dedup_cut_options *options, void **state)
{
    bool *wrong = malloc(sizeof *wrong);

    if (!wrong) {
        return -1;
    }
    *wrong = options->average == 13;
    *state = wrong;
    return 0;
}

static int next(void *state, const unsigned char *data, size_t len, bool final,
                struct poise_dedup_cut *out)
{
    const bool *wrong = state;
    size_t most = len < 4096 ? len : 4096;
    const unsigned char *end = memchr(data, '\n', most);

    if (!end && len < 4096 && !final) {
        return 0;
    }
    out->kind = POISE_DEDUP_SEGMENT;
    out->len = *wrong ? len + 1 : end ? (size_t)(end - data) + 1 : most;
    return 1;
}

POISE_API extern const struct poise_dedup_method poise_dedup_user_method;
const struct poise_dedup_method poise_dedup_user_method = {
    .version = POISE_DEDUP_METHOD_VERSION,
    .name = "lines",
    .summary = "one segment for each line",
    .create = create,
    .destroy = free,
    .next = next,
};
