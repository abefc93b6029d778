/* Jobs as the runtime sees them: callbacks that complete the program's. */
#include "flow/job/lists.h"

#include <errno.h>
#include <stdlib.h>

/** Versions whose tables are kept: some windows of some files. */
#define TABLES_LEAST 16

/* ---- what is known of a block ------------------------------------------- */

/** A question. */
struct question {
    struct flow_lists *lists;
    const struct poise_flow_address *block;
    enum poise_flow_direction direction;
    struct poise_flow_list *out;
};

/* One dependency, unless it is cut off. */
static int add_end(const struct question *q, const struct flow_end *end)
{
    const struct poise_flow_chunk *shape =
        &q->lists->user.files[end->file].shape;
    int64_t by = q->direction == POISE_FLOW_FORWARD ? (int64_t)end->apart
                                                    : -(int64_t)end->apart;
    struct flow_key key = {.file = end->file,
                           .version = q->lists->whole ? shape->versions.from
                                                      : q->block->version + by,
                           .place = end->place};
    struct poise_flow_address other;
    if (key.version < shape->versions.from ||
        key.version >= shape->versions.to) {
        return 0;
    }
    flow_shape_address(shape, &key, &other);
    return poise_flow_list_add(q->out, &other);
}

/* Those of a block that are so many versions away; -1: any number. */
static int add_ends(const struct question *q, const struct flow_index *index,
                    bool derived, int64_t apart)
{
    const struct flow_ends *of = derived ? &index->derived : &index->given;
    uint64_t block = flow_index_block(q->lists, index, q->block);
    int code = 0;
    for (uint64_t i = of->first[block]; code == 0 && i < of->first[block + 1];
         i++) {
        if (apart < 0 || of->ends[i].apart == (uint64_t)apart) {
            code = add_end(q, &of->ends[i]);
        }
    }
    return code;
}

/* The table of a version, made if need be; with the lock. */
static int table_of(struct flow_lists *lists, int64_t version,
                    struct flow_table **out)
{
    struct flow_table *oldest = &lists->tables[0];
    for (unsigned t = 0; t < lists->table_count; t++) {
        struct flow_table *table = &lists->tables[t];
        if (table->version == version) {
            table->used = ++lists->turn;
            *out = table;
            return 0;
        }
        oldest = table->used < oldest->used ? table : oldest;
    }
    flow_index_free(&oldest->index);
    oldest->version = -1;
    int code = flow_index_make(lists, version, flow_lists_given(lists),
                               &oldest->index);
    if (code < 0) {
        flow_index_free(&oldest->index);
        return code;
    }
    oldest->version = version;
    oldest->used = ++lists->turn;
    *out = oldest;
    return 0;
}

/* By what blocks of this version, and of those around, say. */
static int derive(const struct question *q)
{
    int64_t reach = flow_lists_reach(q->lists);
    int code = 0;
    pthread_mutex_lock(&q->lists->lock);
    for (int64_t apart = 0; code == 0 && apart <= reach; apart++) {
        struct flow_table *table = NULL;
        int64_t version = q->direction == POISE_FLOW_FORWARD
                              ? q->block->version + apart
                              : q->block->version - apart;
        code = version < 0 ? 0 : table_of(q->lists, version, &table);
        if (code == 0 && table) {
            code = add_ends(q, &table->index, true, apart);
        }
    }
    pthread_mutex_unlock(&q->lists->lock);
    return code;
}

/* ---- checking ----------------------------------------------------------- */

static bool names(const struct flow_lists *lists,
                  const struct poise_flow_list *list,
                  const struct poise_flow_address *what)
{
    struct flow_key wanted, key;
    if (flow_key_of(&lists->user, what, &wanted) < 0) {
        return false;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (flow_key_of(&lists->user, &list->items[i], &key) == 0 &&
            flow_key_same(&key, &wanted)) {
            return true;
        }
    }
    return false;
}

static int tell_other(const struct question *q,
                      const struct poise_flow_address *other, const char *who)
{
    struct poise_buf name = {0};
    poise_flow_address_text(&q->lists->user, other, &name);
    int code = flow_error(
        &q->lists->user, EILSEQ, "check block", q->block,
        "%s %s list names %s, and %s does not: the job says that its lists are "
        "the same in every version",
        who, q->direction == POISE_FLOW_FORWARD ? "forward" : "backward",
        poise_buf_str(&name),
        who[0] == 'i' ? "that of another version" : "its own");
    poise_buf_free(&name);
    return code;
}

/* Whether the program says of this version what it said of another one. */
static int check(const struct question *q)
{
    const struct poise_flow_job *job = &q->lists->user;
    struct poise_flow_list said = {0};
    int code =
        job->app.depend(NULL, q->block, &job->files[q->block->file].shape,
                        q->direction, &said, job->app.arg);
    bool known = code > 0;
    code = code < 0 ? code : 0;
    for (size_t i = 0; known && code == 0 && i < said.count; i++) {
        if (!names(q->lists, q->out, &said.items[i])) {
            code = tell_other(q, &said.items[i], "its");
        }
    }
    for (size_t i = 0; known && code == 0 && i < q->out->count; i++) {
        if (!names(q->lists, &said, &q->out->items[i])) {
            code = tell_other(q, &q->out->items[i], "another version's");
        }
    }
    free(said.items);
    return code;
}

/* ---- callbacks ---------------------------------------------------------- */

static struct flow_lists *lists_of_arg(void *arg)
{
    return arg;
}

/* The list of one of the program's blocks: 1, 0, or negative. */
static int list_user(const struct question *q, struct poise_flow_task *task)
{
    struct flow_lists *lists = q->lists;
    const struct poise_flow_app *app = &lists->user.app;
    bool both = app->gives == POISE_FLOW_GIVES_BOTH;
    bool derived = q->direction != flow_lists_given(lists);
    int code;
    if (lists->has_index && (!both || app->uniform)) {
        code = add_ends(q, &lists->index, derived, -1);
        code =
            code == 0 && lists->checks && (both || !derived) ? check(q) : code;
    } else if (!app->depend) {
        code = flow_patterns_list(&lists->user, q->block, q->direction, q->out);
    } else if (both || !derived) {
        return app->depend(both ? task : NULL, q->block,
                           &lists->user.files[q->block->file].shape,
                           q->direction, q->out, app->arg);
    } else {
        code = derive(q);
    }
    return code < 0 ? code : 1;
}

static int list_depend(struct poise_flow_task *task,
                       const struct poise_flow_address *block,
                       const struct poise_flow_chunk *file,
                       enum poise_flow_direction direction,
                       struct poise_flow_list *out, void *arg)
{
    struct flow_lists *lists = lists_of_arg(arg);
    struct poise_flow_address own = *block;
    const struct question question = {lists, &own, direction, out};
    (void)file;
    if (!lists->has_stages) {
        return list_user(&question, task);
    }
    if (!flow_stages_user(lists, block, &own)) {
        return 1;
    }
    int code = list_user(&question, task);
    for (size_t i = 0; code >= 0 && i < out->count; i++) {
        struct poise_flow_address other = out->items[i];
        if (!flow_shape_holds(&lists->user.files[0].shape, &other)) {
            return flow_error(&lists->user, ERANGE, "use block", &other,
                              "it lies outside of its file and can never "
                              "exist");
        }
        flow_stages_inner(lists, &other, &out->items[i]);
    }
    return code;
}

static int list_compute(struct poise_flow_task *task,
                        const struct poise_flow_address *block,
                        const struct poise_flow_chunk *file, void *arg)
{
    const struct flow_lists *lists = lists_of_arg(arg);
    const struct poise_flow_app *app = &lists->user.app;
    struct poise_flow_address own = *block;
    if (lists->has_stages && !flow_stages_user(lists, block, &own)) {
        own.version = -1 - own.version; /* as flow_lists_inner knows it */
        return lists->fill(task, &own);
    }
    (void)file;
    return app->compute(task, &own, &lists->user.files[block->file].shape,
                        app->arg);
}

static bool list_is_result(const struct poise_flow_address *block,
                           const struct poise_flow_chunk *file, void *arg)
{
    const struct flow_lists *lists = lists_of_arg(arg);
    const struct poise_flow_app *app = &lists->user.app;
    struct poise_flow_address own = *block;
    (void)file;
    return (!lists->has_stages || flow_stages_user(lists, block, &own)) &&
           app->is_result(&own, &lists->user.files[block->file].shape,
                          app->arg);
}

static void *list_iterate(const struct poise_flow_chunk *chunk, void *arg)
{
    const struct flow_lists *lists = lists_of_arg(arg);
    return lists->user.app.iterate(chunk, lists->user.app.arg);
}

static int list_output(const struct poise_flow_address *block, const void *data,
                       size_t len, void *arg)
{
    const struct flow_lists *lists = lists_of_arg(arg);
    struct poise_flow_address own;
    return flow_stages_user(lists, block, &own)
               ? lists->output(&own, data, len, lists->output_arg)
               : 0;
}

/* ---- addresses ---------------------------------------------------------- */

const struct poise_flow_address *
flow_lists_inner(const struct poise_flow_job *job,
                 const struct poise_flow_address *address,
                 struct poise_flow_address *scratch)
{
    const struct flow_lists *lists = flow_lists_of(job);
    struct flow_key key;
    if (!lists || !lists->has_stages) {
        return address;
    }
    if (address->version < 0) { /* of what fills the last stage */
        *scratch = *address;
        scratch->version = -1 - address->version;
        return flow_stages_user(lists, scratch, scratch) ? NULL : scratch;
    }
    if (flow_key_of(&lists->user, address, &key) < 0) {
        return NULL;
    }
    flow_stages_inner(lists, address, scratch);
    return scratch;
}

const struct poise_flow_address *
flow_lists_named(const struct poise_flow_job **job,
                 const struct poise_flow_address *address,
                 struct poise_flow_address *scratch)
{
    const struct flow_lists *lists = flow_lists_of(*job);
    if (lists && lists->has_stages &&
        flow_shape_holds(&lists->files[0].shape, address) &&
        flow_stages_user(lists, address, scratch)) {
        *job = &lists->user;
        return scratch;
    }
    return address;
}

/* ---- making ------------------------------------------------------------- */

bool flow_lists_needed(const struct poise_flow_job *job)
{
    bool needed = !job->app.depend || job->app.pattern_count > 0 ||
                  job->app.uniform || job->app.gives != POISE_FLOW_GIVES_BOTH;
    for (uint32_t f = 0; job->files && f < job->file_count; f++) {
        const struct poise_flow_file *file = &job->files[f];
        const struct poise_flow_range v = flow_shape_versions(&file->shape);
        needed |= file->stages != 0 || file->shape.versions.to == 0 ||
                  (file->adapt > 0 && v.to - v.from == 1);
    }
    return needed;
}

struct flow_lists *flow_lists_of(const struct poise_flow_job *job)
{
    return job->app.depend == list_depend ? job->app.arg : NULL;
}

bool flow_lists_strict(const struct poise_flow_job *job)
{
    const struct flow_lists *lists = flow_lists_of(job);
    return lists && (!lists->user.app.depend ||
                     lists->user.app.gives != POISE_FLOW_GIVES_BOTH);
}

static int check_app(const struct poise_flow_job *job)
{
    const struct poise_flow_app *app = &job->app;
    int code = 0;
    if (app->depend ? app->pattern_count > 0
                    : app->pattern_count == 0 || !app->patterns) {
        return poise_error_set(EINVAL, "run job", NULL,
                               app->depend
                                   ? "it has patterns and a callback for lists"
                                   : "it has neither patterns nor a callback "
                                     "for lists");
    }
    for (size_t i = 0; code == 0 && i < app->pattern_count; i++) {
        const struct poise_flow_pattern *p = &app->patterns[i];
        if (p->file >= job->file_count || p->of >= job->file_count ||
            p->back < 0 || p->reach < 0 || (p->offset_count && !p->offsets)) {
            code = poise_error_set(EINVAL, "run job", NULL,
                                   "pattern %zu makes no sense", i);
        }
    }
    if (app->reach < 0 || app->reach > INT32_MAX) {
        code = poise_error_set(EINVAL, "run job", NULL,
                               "its lists reach over %lld versions",
                               (long long)app->reach);
    }
    return code;
}

/* The index that serves all versions, if there is one. */
static int index_once(struct flow_lists *lists)
{
    const struct poise_flow_app *app = &lists->user.app;
    bool one_list = app->gives != POISE_FLOW_GIVES_BOTH;
    int64_t middle = lists->whole ? -1 : flow_index_middle(lists);
    bool wanted =
        lists->whole ? one_list || app->uniform : app->uniform && middle >= 0;
    if (!app->depend || !wanted) {
        return 0;
    }
    int code =
        flow_index_make(lists, middle, flow_lists_given(lists), &lists->index);
    lists->has_index = code == 0;
    return code;
}

static int tables_make(struct flow_lists *lists)
{
    unsigned reach = (unsigned)flow_lists_reach(lists);
    lists->table_count = TABLES_LEAST + 2 * reach;
    lists->tables = poise_alloc(lists->table_count, sizeof *lists->tables);
    for (unsigned t = 0; lists->tables && t < lists->table_count; t++) {
        lists->tables[t].version = -1;
    }
    return lists->tables ? 0 : -ENOMEM;
}

static int files_copy(struct flow_lists *lists)
{
    const struct poise_flow_job *job = &lists->user;
    size_t count = job->file_count;
    lists->files = poise_alloc(count, sizeof *lists->files);
    lists->user_files = poise_alloc(count, sizeof *lists->user_files);
    lists->whole = true;
    for (size_t f = 0; lists->files && lists->user_files && f < count; f++) {
        struct poise_flow_file *file = &lists->user_files[f];
        *file = job->files[f];
        file->shape.versions = flow_shape_versions(&file->shape);
        int code = flow_shape_check(&file->shape, file->name);
        if (code < 0) {
            return code;
        }
        lists->whole &=
            file->shape.versions.to - file->shape.versions.from == 1;
        lists->files[f] = *file;
    }
    return lists->files && lists->user_files ? 0 : -ENOMEM;
}

int flow_lists_make(const struct poise_flow_job *job,
                    struct poise_flow_options *options, struct flow_lists *out)
{
    *out = (struct flow_lists){.user = *job};
    pthread_mutex_init(&out->lock, NULL);
    if (job->file_count == 0 || !job->files || !job->app.compute) {
        return poise_error_set(EINVAL, "run job", NULL,
                               "it has no file or lacks a callback");
    }
    int code = check_app(job);
    code = code == 0 ? files_copy(out) : code;
    out->user.files = out->user_files;
    out->checks = options->check > 0;
    code = code == 0 ? index_once(out) : code;
    code = code == 0 ? tables_make(out) : code;
    code = code == 0 ? flow_stages_make(out) : code;
    if (code < 0) {
        return code;
    }
    out->job = out->user;
    out->job.files = out->files;
    out->job.app.depend = list_depend;
    out->job.app.compute = list_compute;
    out->job.app.is_result = job->app.is_result ? list_is_result : NULL;
    out->job.app.iterate = job->app.iterate ? list_iterate : NULL;
    out->job.app.arg = out;
    if (out->has_stages && options->output) {
        out->output = options->output;
        out->output_arg = options->output_arg;
        options->output = list_output;
        options->output_arg = out;
    }
    return 0;
}

void flow_lists_free(struct flow_lists *lists)
{
    for (unsigned t = 0; t < lists->table_count && lists->tables; t++) {
        flow_index_free(&lists->tables[t].index);
    }
    free(lists->tables);
    flow_index_free(&lists->index);
    free(lists->stages.order);
    free(lists->stages.rank);
    free(lists->files);
    free(lists->user_files);
    pthread_mutex_destroy(&lists->lock);
}
