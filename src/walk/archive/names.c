/* Members that are wanted by their names: these and what is below them. */
#include "extract.h"

#include <stdlib.h>

struct extract_names {
    size_t count;
    uint64_t *found;          /* [count]: members; __atomic */
    struct poise_buf plain[]; /* without "./" and the like */
};

int extract_names_create(struct extract *x)
{
    size_t count = x->options->name_count;
    int code = 0;
    if (count == 0) {
        return 0;
    }
    struct extract_names *names =
        poise_alloc(1, sizeof *names + count * sizeof *names->plain);
    if (!names) {
        return -ENOMEM;
    }
    memset(names, 0, sizeof *names + count * sizeof *names->plain);
    names->count = count;
    names->found = poise_alloc(count, sizeof *names->found);
    x->wanted = names;
    for (size_t i = 0; i < count && code == 0; i++) {
        code = names->found
                   ? tar_place_name(x->options->names[i], &names->plain[i])
                   : -ENOMEM;
    }
    return code;
}

void extract_names_free(struct extract_names *names)
{
    for (size_t i = 0; names && i < names->count; i++) {
        poise_buf_free(&names->plain[i]);
    }
    if (names) {
        free(names->found);
    }
    free(names);
}

int extract_is_wanted(const struct extract *x, const char *name, size_t len,
                      struct poise_buf *memory)
{
    struct extract_names *names = x->wanted;
    struct poise_buf text = {0};
    int is = 0;
    if (!names) {
        return 1;
    }
    poise_buf_append(&text, name, len);
    poise_buf_str(&text);
    int code = text.error ? text.error : tar_place_name(text.data, memory);
    for (size_t i = 0; code == 0 && i < names->count; i++) {
        const struct poise_buf *want = &names->plain[i];
        if (want->len == 0 ||
            (memory->len >= want->len &&
             memcmp(memory->data, want->data, want->len) == 0 &&
             (memory->len == want->len || memory->data[want->len] == '/'))) {
            __atomic_fetch_add(&names->found[i], 1, __ATOMIC_RELAXED);
            is = 1;
        }
    }
    poise_buf_free(&text);
    return code == -ENOMEM ? code : is;
}

int extract_names_end(struct extract *x)
{
    struct extract_names *names = x->wanted;
    int code = 0;
    if (names && x->world) {
        code =
            poise_world_reduce(x->world, POISE_SUM, names->found, names->count);
    }
    for (size_t i = 0; names && x->rank == 0 && i < names->count && code == 0;
         i++) {
        if (names->found[i] == 0) {
            poise_error_set(ENOENT, "extract", x->options->names[i],
                            "no member has that name");
            code = extract_report(x, NULL, -ENOENT);
        }
    }
    return extract_agree(x, code);
}
