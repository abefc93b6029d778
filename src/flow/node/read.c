/* What the callbacks use: making, writing and reading blocks. */
#include "state.h"

#include "flow/job/lists.h"

#include <errno.h>
#include <stdlib.h>

/* A callback that computes is outside; one that is asked about dependencies is
 * called by who has the node, or inside: then it gets nothing, and is asked
 * once more. */
static bool task_lock(struct poise_flow_task *task)
{
    if (task->state == FLOW_RUNNING) {
        flow_node_lock(task->node);
        return true;
    }
    return false;
}

static void task_unlock(struct poise_flow_task *task, bool locked)
{
    if (locked) {
        flow_node_unlock(task->node);
    }
}

unsigned poise_flow_node(const struct poise_flow_task *task)
{
    return task && task->node ? task->node->id : 0;
}

uint64_t poise_flow_ready_ns(const struct poise_flow_task *task)
{
    return task->ready_ns;
}

/* ---- writing ------------------------------------------------------------ */

void *poise_flow_make(struct poise_flow_task *task, size_t len)
{
    struct flow_made *made = flow_processor_make(task->processor, len);
    if (!made) {
        return NULL;
    }
    made->next = task->made;
    task->made = made;
    return flow_made_data(made);
}

static int room_for_write(struct poise_flow_task *task)
{
    if (!task->written) {
        task->written = &task->one;
        task->written_cap = 1;
    }
    if (task->written_count == task->written_cap) {
        uint32_t cap = 2 * task->written_cap;
        bool first = task->written == &task->one;
        struct flow_write *written =
            poise_realloc(first ? NULL : task->written, cap, sizeof *written);
        if (!written) {
            return -ENOMEM;
        }
        if (first) {
            *written = task->one;
        }
        task->written = written;
        task->written_cap = cap;
    }
    return 0;
}

int poise_flow_write(struct poise_flow_task *task,
                     const struct poise_flow_address *to, void *data,
                     size_t len)
{
    struct flow_key key;
    struct flow_made **at = &task->made;
    struct poise_flow_address inner;
    if (!task || !task->node) {
        return -EINVAL;
    }
    to = flow_lists_inner(task->node->job, to, &inner);
    int code = to ? flow_key_of(task->node->job, to, &key) : -ERANGE;
    while (*at && flow_made_data(*at) != data) {
        at = &(*at)->next;
    }
    if (code == 0 && (!*at || len > (*at)->len)) {
        code = flow_error(task->node->job, EINVAL, "write block", to,
                          *at ? "more bytes than were made"
                              : "its data were not made by this call");
    }
    if (code == 0) {
        code = room_for_write(task);
    }
    if (code == 0) {
        struct flow_made *made = *at;
        *at = made->next;
        made->len = len;
        task->written[task->written_count++] = (struct flow_write){key, made};
    }
    return code;
}

/* ---- reading ------------------------------------------------------------ */

static void view_set(struct poise_flow_view *out, struct flow_block *block,
                     void *handle)
{
    out->data = flow_made_data(block->made);
    out->len = block->made->len;
    out->handle = handle;
}

/* Reference a block until the call ends. */
static int view_add(struct poise_flow_task *task, struct flow_block *block)
{
    if (task->view_count == task->view_cap) {
        uint32_t cap = task->view_cap ? 2 * task->view_cap : 4;
        struct flow_block **views =
            poise_realloc(task->views, cap, sizeof(struct flow_block *));
        if (!views) {
            return -ENOMEM;
        }
        task->views = views;
        task->view_cap = cap;
    }
    task->views[task->view_count++] = block;
    flow_block_take(block);
    return 0;
}

/* Of a job that names patterns or gives one list no more is needed than that
 * says: to wait for other blocks, which may be freed and computed again, would
 * take longer with each version. */
static int read_unnamed(const struct poise_flow_task *task,
                        const struct poise_flow_address *from)
{
    const struct poise_flow_job *job = task->node->job;
    struct poise_buf name = {0};
    poise_flow_address_text(job, from, &name);
    int code = flow_error(job, EILSEQ, "compute block", &task->address,
                          "it reads %s, which its list does not name",
                          poise_buf_str(&name));
    poise_buf_free(&name);
    return code;
}

int poise_flow_read(struct poise_flow_task *task,
                    const struct poise_flow_address *from,
                    struct poise_flow_view *out)
{
    struct flow_key key;
    struct poise_flow_address inner;
    if (!task || !task->node) {
        return -EAGAIN;
    }
    from = flow_lists_inner(task->node->job, from, &inner);
    int code = from ? flow_key_of(task->node->job, from, &key) : -ERANGE;
    if (code < 0) {
        return code;
    }
    for (uint32_t i = 0; i < task->edge_count; i++) {
        struct flow_key other = flow_block_key(task->edges[i].block);
        if (flow_key_same(&other, &key)) {
            view_set(out, task->edges[i].block, NULL);
            return 0;
        }
    }
    if (task->state == FLOW_RUNNING && flow_lists_strict(task->node->job)) {
        return read_unnamed(task, from);
    }
    if (task->hurried) {
        task->tripped = true;
        return -EAGAIN;
    }
    bool locked = task_lock(task);
    struct flow_block *block = flow_block_find(task->node, &key);
    if (block && block->made) {
        code = view_add(task, block);
        if (code == 0) {
            view_set(out, block, block);
        }
    } else if (task->state == FLOW_RUNNING) {
        code = poise_flow_list_add(&task->more, from);
        code = code < 0 ? code : -EAGAIN;
    } else {
        code = -EAGAIN;
    }
    task_unlock(task, locked);
    return code;
}

int poise_flow_read_near(struct poise_flow_task *task,
                         const struct poise_flow_address *block,
                         const struct poise_flow_chunk *file, int64_t back,
                         const int64_t *offset, bool torus,
                         struct poise_flow_view *out)
{
    struct poise_flow_address at = *block;
    at.version -= back;
    for (unsigned d = 0; d < file->dims; d++) {
        at.index[d] += offset[d];
    }
    if (torus) {
        flow_shape_wrap(file, &at);
    }
    *out = (struct poise_flow_view){0};
    return flow_shape_holds(file, &at) ? poise_flow_read(task, &at, out) : 0;
}

void poise_flow_free(struct poise_flow_task *task, struct poise_flow_view *view)
{
    if (!view->handle) {
        return;
    }
    bool locked = task_lock(task);
    for (uint32_t i = 0; i < task->view_count; i++) {
        if (task->views[i] == view->handle) {
            flow_block_give(task->views[i]);
            flow_block_release(task->node, task->views[i]);
            task->views[i] = task->views[--task->view_count];
            break;
        }
    }
    view->handle = NULL;
    task_unlock(task, locked);
}

/* ---- asking ------------------------------------------------------------- */

static bool key_exists(const struct flow_node *node, const struct flow_key *key)
{
    const struct flow_block *block = flow_block_find(node, key);
    return (block && block->made) || flow_is_done(node, key);
}

int poise_flow_exists(struct poise_flow_task *task,
                      const struct poise_flow_address *address)
{
    struct flow_key key;
    struct poise_flow_address inner;
    if (!task || !task->node) {
        return 0;
    }
    address = flow_lists_inner(task->node->job, address, &inner);
    int code = address ? flow_key_of(task->node->job, address, &key) : -ERANGE;
    if (task->hurried) {
        task->tripped = true;
        return code;
    }
    if (code == 0) {
        bool locked = task_lock(task);
        code = key_exists(task->node, &key);
        task_unlock(task, locked);
    }
    return code;
}

static int64_t newest_of(const struct flow_node *node, uint32_t file)
{
    int64_t newest = node->files[file].newest;
    for (unsigned p = 0; p < node->threads; p++) {
        int64_t of = atomic_load_explicit(
            &node->processors[p].parts[file].newest, memory_order_relaxed);
        newest = of > newest ? of : newest;
    }
    return newest;
}

int poise_flow_most_recent(struct poise_flow_task *task,
                           const struct poise_flow_address *address,
                           struct poise_flow_address *out)
{
    struct flow_key key;
    struct poise_flow_address any = *address;
    const struct flow_lists *lists =
        task && task->node ? flow_lists_of(task->node->job) : NULL;
    if (!task || !task->node) {
        return 0;
    }
    if (lists && lists->has_stages) {
        any.version = lists->user.files[0].shape.versions.from;
        *out = any;
        return poise_flow_exists(task, &any);
    }
    if (any.file < task->node->job->file_count) {
        any.version = flow_file(task->node, any.file)->versions.from;
    }
    int code = flow_key_of(task->node->job, &any, &key);
    if (code < 0) {
        return code;
    }
    if (task->hurried) {
        task->tripped = true;
        return 0;
    }
    int64_t first = any.version;
    bool locked = task_lock(task);
    key.version = newest_of(task->node, key.file);
    while (key.version >= first && !key_exists(task->node, &key)) {
        key.version--;
    }
    task_unlock(task, locked);
    if (key.version < first) {
        return 0;
    }
    any.version = key.version;
    *out = any;
    return 1;
}
