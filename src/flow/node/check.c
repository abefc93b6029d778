/*
 * The checking mode: a sample of the blocks is computed twice and compared,
 * and their dependency lists are held against each other.
 */
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Chosen by address: the same blocks on every node and in every run. */
static bool is_chosen(const struct poise_flow_task *task)
{
    struct flow_key key = flow_block_key(task->block);
    uint64_t dice = poise_hash_u64(key.place * UINT64_C(0x9e3779b97f4a7c15) +
                                   (uint64_t)key.version + 1);
    return (double)(dice >> 11) * 0x1p-53 < task->node->options->check;
}

static int compare(const struct poise_flow_task *task,
                   const struct flow_write *first, uint32_t count)
{
    const struct poise_flow_job *job = task->node->job;
    if (task->written_count != count) {
        return flow_error(job, EILSEQ, "check block", &task->address,
                          "computed again, it wrote %u blocks, not %u",
                          task->written_count, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct flow_write *a = &first[i], *b = &task->written[i];
        size_t at = 0, len = a->made->len;
        const char *x = flow_made_data(a->made), *y = flow_made_data(b->made);
        if (!flow_key_same(&a->key, &b->key) || len != b->made->len) {
            return flow_error(job, EILSEQ, "check block", &task->address,
                              "computed again, it wrote another block or "
                              "another length");
        }
        while (at < len && x[at] == y[at]) {
            at++;
        }
        if (at < len) {
            return flow_error(job, EILSEQ, "check block", &task->address,
                              "computed again, byte %zu of %zu differs", at,
                              len);
        }
    }
    return 0;
}

int flow_check_compute(struct poise_flow_task *task)
{
    const struct poise_flow_app *app = &task->node->job->app;
    bool alone = task->written == &task->one;
    struct flow_write one = task->one;
    struct flow_write *first = alone ? &one : task->written;
    uint32_t count = task->written_count;
    if (!is_chosen(task)) {
        return 0;
    }
    task->written = NULL;
    task->written_count = task->written_cap = 0;
    int code =
        app->compute(task, &task->address,
                     flow_file(task->node, task->address.file), app->arg);
    if (code == 0) {
        code = compare(task, first, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        free(first[i].made);
    }
    if (!alone) {
        free(first);
    }
    return code;
}

/* Whether the list of the block `of` in one direction names `what`; also if it
 * is not known. Negative on failure. */
static int names(struct flow_node *node, const struct flow_key *of,
                 enum poise_flow_direction direction,
                 const struct poise_flow_address *what)
{
    struct flow_key wanted, key;
    int code = flow_ask(node, of, direction);
    if (code <= 0) {
        return code < 0 ? code : 1;
    }
    code = flow_key_of(node->job, what, &wanted);
    for (size_t i = 0; code == 0 && i < node->list.count; i++) {
        code = flow_key_of(node->job, &node->list.items[i], &key);
        if (code == 0 && flow_key_same(&key, &wanted)) {
            return 1;
        }
    }
    return code;
}

static int check_direction(struct flow_node *node,
                           const struct poise_flow_task *task,
                           enum poise_flow_direction direction)
{
    bool back = direction == POISE_FLOW_BACKWARD;
    struct poise_buf other = {0};
    struct flow_key key;
    struct flow_key own = flow_block_key(task->block);
    int code = flow_ask(node, &own, direction);
    if (code <= 0) {
        return code;
    }
    struct poise_flow_list list = node->list;
    node->list = (struct poise_flow_list){0};
    code = 0;
    for (size_t i = 0; code >= 0 && i < list.count; i++) {
        code = flow_key_of(node->job, &list.items[i], &key);
        if (code == 0) {
            code = names(node, &key,
                         back ? POISE_FLOW_FORWARD : POISE_FLOW_BACKWARD,
                         &task->address);
        }
        if (code == 0) {
            poise_flow_address_text(node->job, &list.items[i], &other);
            code =
                flow_error(node->job, EILSEQ, "check block", &task->address,
                           "its %s list names %s, whose %s list does not "
                           "name it",
                           back ? "backward" : "forward", poise_buf_str(&other),
                           back ? "forward" : "backward");
        }
    }
    poise_buf_free(&other);
    free(list.items);
    return code < 0 ? code : 0;
}

int flow_check_lists(struct flow_node *node, const struct poise_flow_task *task)
{
    if (!is_chosen(task)) {
        return 0;
    }
    int code = check_direction(node, task, POISE_FLOW_BACKWARD);
    return code < 0 ? code : check_direction(node, task, POISE_FLOW_FORWARD);
}
