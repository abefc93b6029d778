/*
 * A filter: an expression of tests alone, asked by other operations of the
 * entries that they walk over. States belong to workers, as in a run of find;
 * the table of them grows, since a filter does not know whose walk will ask.
 */
#include "internal.h"

#include <stdlib.h>

/* Old tables stay until the end: others may be reading them. */
struct filter_states {
    struct filter_states *before;
    size_t count;
    struct find_state *states[]; /* each __atomic, made at first use */
};

struct poise_walk_filter {
    struct poise_walk_find *find;
    struct find_run run;         /* without options */
    struct filter_states *table; /* __atomic; changed under run.lock */
};

int poise_walk_filter_parse(const char *const *words, size_t count,
                            struct poise_walk_filter **out)
{
    if (count == 0) {
        return poise_error_set(EINVAL, "choose entries", NULL,
                               "no test was given");
    }
    struct poise_walk_filter *filter = poise_alloc(1, sizeof *filter);
    if (!filter) {
        return -ENOMEM;
    }
    int code = find_compile(count, words, true, &filter->find);
    if (code < 0) {
        free(filter);
        return code;
    }
    filter->run.find = filter->find;
    pthread_mutex_init(&filter->run.lock, NULL);
    find_agree_on_now(&filter->run, NULL);
    *out = filter;
    return 0;
}

void poise_walk_filter_free(struct poise_walk_filter *filter)
{
    if (!filter) {
        return;
    }
    struct filter_states *table = filter->table;
    for (size_t i = 0; table && i < table->count; i++) {
        find_state_free(table->states[i]);
    }
    while (table) {
        struct filter_states *before = table->before;
        free(table);
        table = before;
    }
    find_mounts_free(&filter->run);
    pthread_mutex_destroy(&filter->run.lock);
    poise_walk_find_destroy(filter->find);
    free(filter);
}

int poise_walk_filter_agree(struct poise_walk_filter *filter,
                            struct poise_world *world)
{
    return filter && world ? find_agree_on_now(&filter->run, world) : 0;
}

unsigned poise_walk_filter_mask(const struct poise_walk_filter *filter)
{
    return filter->find->fetch_mask;
}

/* A table with a place for every worker of the pool; NULL: no memory. */
static struct filter_states *table_grow(struct poise_walk_filter *filter,
                                        size_t count)
{
    pthread_mutex_lock(&filter->run.lock);
    struct filter_states *old = filter->table, *table = old;
    if (!old || old->count < count) {
        table = poise_alloc(1, sizeof *table + count * sizeof *table->states);
        if (table) {
            table->before = old;
            table->count = count;
            for (size_t i = 0; old && i < old->count; i++) {
                table->states[i] = old->states[i];
            }
            __atomic_store_n(&filter->table, table, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&filter->run.lock);
    return table;
}

static struct find_state *filter_state(struct poise_walk_filter *filter,
                                       struct poise_worker *worker)
{
    unsigned index = poise_worker_index(worker);
    struct filter_states *table =
        __atomic_load_n(&filter->table, __ATOMIC_ACQUIRE);
    size_t most = poise_pool_workers(poise_worker_pool(worker));
    if (!table || table->count < most) {
        /* All workers of this pool come here first: nobody is making a state
         * in the table that is copied. */
        table = table_grow(filter, most);
        if (!table) {
            return NULL;
        }
    }
    struct find_state *state = table->states[index];
    if (!state) {
        state = find_state_create(&filter->run);
        table->states[index] = state;
    }
    return state;
}

static bool in_depth(const struct poise_walk_find *find,
                     const struct poise_walk_entry *entry)
{
    return entry->depth >= find->min_depth &&
           (!find->has_max_depth || entry->depth <= find->max_depth);
}

static int filter_eval(struct find_state *state)
{
    bool value = find_eval(state, state->find->root);
    int code = state->error < 0 ? state->error : state->failed;
    state->entry = NULL;
    state->error = 0;
    return code < 0 ? code : value;
}

int poise_walk_filter_match(struct poise_walk_filter *filter,
                            const struct poise_walk_entry *entry)
{
    if (!in_depth(filter->find, entry)) {
        return 0;
    }
    struct find_state *state = filter_state(filter, entry->worker);
    if (!state) {
        return -ENOMEM;
    }
    find_state_begin(state, entry);
    return filter_eval(state);
}

int poise_walk_filter_match_now(struct poise_walk_filter *filter,
                                const struct poise_walk_entry *entry)
{
    if (!in_depth(filter->find, entry)) {
        return 0;
    }
    struct find_state *state = filter_state(filter, entry->worker);
    if (!state) {
        return -ENOMEM;
    }
    struct statx now;
    find_state_begin(state, entry);
    if (filter->find->mask != 0) {
        int dirfd;
        if (!find_dirfd(state, &dirfd)) {
            return state->failed;
        }
        int code = poise_file_statx(dirfd, entry->name, AT_SYMLINK_NOFOLLOW,
                                    filter->find->mask | STATX_TYPE, &now);
        if (code < 0) {
            find_complain(state, code, "access");
            return code;
        }
        state->stat = &now;
    }
    return filter_eval(state);
}
