/*
 * The last error of a context: three strings in one block, inside the context
 * where they fit, allocated where they do not, cut short where even that
 * fails. Setting an error never fails and never sets another.
 */
#include "internal.h"

#include "core/base/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** The three strings and their lengths, terminators not counted. */
struct error_parts {
    const char *doing, *what, *why;
    size_t doing_len, what_len, why_len;
};

static size_t error_total(const struct error_parts *parts)
{
    return parts->doing_len + parts->what_len + parts->why_len + 3;
}

static void error_cut(size_t *len, size_t least, size_t *excess)
{
    size_t cut = *len > least ? *len - least : 0;
    if (cut > *excess) {
        cut = *excess;
    }
    *len -= cut;
    *excess -= cut;
}

/* Shorten the parts until they fit the context's own space, beginning with the
 * one that can spare most. */
static void error_shorten(struct error_parts *parts)
{
    size_t total = error_total(parts);
    size_t excess = total > CTX_ERROR_BYTES ? total - CTX_ERROR_BYTES : 0;
    error_cut(&parts->what_len, CTX_ERROR_BYTES / 2, &excess);
    error_cut(&parts->why_len, CTX_ERROR_BYTES / 4, &excess);
    error_cut(&parts->doing_len, CTX_ERROR_BYTES / 8, &excess);
}

static const char *error_store(char **to, const char *from, size_t len)
{
    char *start = *to;
    memcpy(start, from, len);
    start[len] = '\0';
    *to += len + 1;
    return start;
}

/* Format `why`: into `small` if it fits, else into memory that the caller
 * frees by *big, else what there is room for. */
static const char *error_why(char small[CTX_ERROR_BYTES], char **big, int code,
                             const char *format, va_list args)
{
    if (format == NULL) {
        const char *text = strerrordesc_np(code);
        return text != NULL ? text : "unknown error";
    }
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(small, CTX_ERROR_BYTES, format, args);
    if (len < 0) {
        small[0] = '\0';
    } else if (len >= CTX_ERROR_BYTES && fault_test(POISE_FAULT_ALLOC) == 0) {
        *big = malloc((size_t)len + 1);
        if (*big != NULL) {
            vsnprintf(*big, (size_t)len + 1, format, again);
        }
    }
    va_end(again);
    return *big != NULL ? *big : small;
}

int poise_error_set(int code, const char *doing, const char *what,
                    const char *format, ...)
{
    struct poise_ctx *ctx = poise_ctx_current();
    char small[CTX_ERROR_BYTES];
    char *why_big = NULL;
    struct error_parts parts = {.doing = doing, .what = what ? what : ""};

    va_list args;
    va_start(args, format);
    parts.why = error_why(small, &why_big, code, format, args);
    va_end(args);
    parts.doing_len = strlen(parts.doing);
    parts.what_len = strlen(parts.what);
    parts.why_len = strlen(parts.why);

    /* The arguments may point into the error that is being replaced, so all
     * of it is built elsewhere first. */
    char block[CTX_ERROR_BYTES];
    char *big = NULL;
    if (error_total(&parts) > sizeof block) {
        if (fault_test(POISE_FAULT_ALLOC) == 0) {
            big = malloc(error_total(&parts));
        }
        if (big == NULL) {
            error_shorten(&parts);
        }
    }
    char *to = big != NULL ? big : block;
    error_store(&to, parts.doing, parts.doing_len);
    error_store(&to, parts.what, parts.what_len);
    error_store(&to, parts.why, parts.why_len);
    const char *at = big;
    if (big == NULL) {
        memcpy(ctx->error_small, block, (size_t)(to - block));
        at = ctx->error_small;
    }
    free(ctx->error_big);
    free(why_big);
    ctx->error_big = big;
    ctx->error.code = code;
    ctx->error.doing = at;
    ctx->error.what = at + parts.doing_len + 1;
    ctx->error.why = ctx->error.what + parts.what_len + 1;
    return -code;
}

const struct poise_error *poise_error_last(void)
{
    return &poise_ctx_current()->error;
}

void poise_error_clear(void)
{
    struct poise_ctx *ctx = poise_ctx_current();
    free(ctx->error_big);
    ctx->error_big = NULL;
    ctx->error = (struct poise_error){.doing = "", .what = "", .why = ""};
}

int poise_error_format(const struct poise_error *err, struct poise_buf *out)
{
    if (err->code == 0) {
        return poise_buf_puts(out, "no error");
    }
    poise_buf_puts(out, "cannot ");
    poise_buf_escape(out, err->doing, strlen(err->doing));
    if (err->what[0] != '\0') {
        poise_buf_puts(out, " '");
        poise_buf_escape(out, err->what, strlen(err->what));
        poise_buf_putc(out, '\'');
    }
    poise_buf_puts(out, ": ");
    poise_buf_escape(out, err->why, strlen(err->why));
    return out->error;
}
