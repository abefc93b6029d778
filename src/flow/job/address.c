/* Addresses: as text, in lists, in errors. */
#include "flow/job/job.h"
#include "flow/job/lists.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int poise_flow_address_text(const struct poise_flow_job *job,
                            const struct poise_flow_address *address,
                            struct poise_buf *out)
{
    struct poise_flow_address user;
    struct poise_flow_range versions = {0, 0};
    unsigned dims = 1;
    address = flow_lists_named(&job, address, &user);
    if (address->file < job->file_count) {
        const struct poise_flow_file *file = &job->files[address->file];
        poise_buf_puts(out, file->name ? file->name : "file");
        dims = file->shape.dims;
        versions = flow_shape_versions(&file->shape);
    } else {
        poise_buf_printf(out, "file %u", address->file);
    }
    /* Of a file with the version 0 alone it says nothing. */
    if (versions.from != 0 || versions.to != 1 || address->version != 0) {
        poise_buf_printf(out, ":%lld", (long long)address->version);
    }
    poise_buf_putc(out, '[');
    for (unsigned d = 0; d < dims; d++) {
        poise_buf_printf(out, d > 0 ? ",%lld" : "%lld",
                         (long long)address->index[d]);
    }
    return poise_buf_putc(out, ']');
}

int poise_flow_list_add(struct poise_flow_list *list,
                        const struct poise_flow_address *address)
{
    if (list->count == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 16;
        struct poise_flow_address *items =
            poise_realloc(list->items, cap, sizeof *items);
        if (!items) {
            return -ENOMEM;
        }
        list->items = items;
        list->cap = cap;
    }
    list->items[list->count++] = *address;
    return 0;
}

int flow_key_of(const struct poise_flow_job *job,
                const struct poise_flow_address *address, struct flow_key *out)
{
    if (address->file >= job->file_count ||
        !flow_shape_holds(&job->files[address->file].shape, address)) {
        return flow_error(job, ERANGE, "use block", address,
                          "it lies outside of its file and can never exist");
    }
    out->file = address->file;
    out->version = address->version;
    out->place = flow_shape_place(&job->files[address->file].shape, address);
    return 0;
}

int flow_error(const struct poise_flow_job *job, int code, const char *doing,
               const struct poise_flow_address *what, const char *why, ...)
{
    struct poise_buf name = {0}, reason = {0};
    va_list args;
    char text[256];
    va_start(args, why);
    vsnprintf(text, sizeof text, why, args);
    va_end(args);
    poise_flow_address_text(job, what, &name);
    poise_buf_puts(&reason, text);
    poise_error_set(code, doing, poise_buf_str(&name), "%s",
                    poise_buf_str(&reason));
    poise_buf_free(&name);
    poise_buf_free(&reason);
    return -code;
}

int flow_callback_error(const struct poise_flow_job *job, int code,
                        const char *doing,
                        const struct poise_flow_address *what)
{
    const char *why = strerrordesc_np(-code);
    return poise_error_last()->code == -code
               ? code
               : flow_error(job, -code, doing, what,
                            "the callback returned %d (%s)", code,
                            why ? why : "which is no errno");
}

int flow_failure_keep(struct flow_failure *failure, int code)
{
    const struct poise_error *error = poise_error_last();
    if (failure->code == 0) {
        failure->code = code;
        bool is_set = error->code == -code;
        poise_buf_puts(&failure->doing, is_set ? error->doing : "run job");
        poise_buf_puts(&failure->what, is_set ? error->what : "");
        poise_buf_puts(&failure->why, is_set ? error->why : "");
    }
    return code;
}

int flow_failure_set(struct flow_failure *failure)
{
    const char *why = poise_buf_str(&failure->why);
    return poise_error_set(-failure->code, poise_buf_str(&failure->doing),
                           poise_buf_str(&failure->what), *why ? "%s" : NULL,
                           why);
}

void flow_failure_free(struct flow_failure *failure)
{
    poise_buf_free(&failure->doing);
    poise_buf_free(&failure->what);
    poise_buf_free(&failure->why);
}
