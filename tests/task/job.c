/* A job for the tests of the task pool: count the nodes of a tree. */
#include "job.h"

const struct tree small_tree = {1, 100, 5, 18};
const struct tree large_tree = {3, 2000, 8, 12};

void job_commit(struct poise_worker *worker, void *arg)
{
    struct job *job = arg;
    struct tree_sum *mine = &job->private[poise_worker_index(worker)];
    __atomic_fetch_add(&job->committed.nodes, mine->nodes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&job->committed.ids, mine->ids, __ATOMIC_RELAXED);
    *mine = (struct tree_sum){0};
}

int job_visit(struct poise_worker *worker, struct job *job,
              const struct tree_node *node, size_t len)
{
    struct tree_sum *mine = &job->private[poise_worker_index(worker)];
    mine->nodes++;
    mine->ids += node->id;
    if (!tree_intact(node, len)) {
        __atomic_fetch_add(&job->broken, 1, __ATOMIC_RELAXED);
    }
    return 0;
}

int job_add_children(struct poise_worker *worker, struct job *job,
                     const struct tree_node *node)
{
    unsigned width = tree_width(&job->tree, node);
    int code = 0;
    for (unsigned i = 0; i < width && code == 0; i++) {
        struct tree_node child = tree_child(node, i);
        code = poise_task_add(worker, &child, tree_bytes(&child), 0);
        if (code == 0 && job->slices > 0 && i % job->slices == 0) {
            code = poise_task_commit(worker, node, tree_bytes(node));
        }
    }
    return code;
}

int job_run(struct poise_worker *worker, const void *task, size_t len,
            void *arg)
{
    struct job *job = arg;
    struct tree_node node;
    memcpy(&node, task, len);
    job_visit(worker, job, &node, len);
    if (job->stop_at > 0 && __atomic_load_n(&job->committed.nodes,
                                            __ATOMIC_RELAXED) >= job->stop_at) {
        if (job->stop_value < 0) {
            return poise_error_set(-job->stop_value, "visit", "a node", NULL);
        }
        poise_task_stop(worker, job->stop_value);
    }
    return job_add_children(worker, job, &node);
}

struct poise_pool_hooks job_hooks(struct job *job)
{
    return (struct poise_pool_hooks){
        .run = job_run, .commit = job_commit, .arg = job};
}

int job_go(struct job *job, const struct poise_pool_hooks *hooks,
           const struct poise_pool_options *options, struct poise_pool **out)
{
    struct poise_pool *pool;
    struct tree_node root = tree_root(&job->tree);
    job->committed = (struct tree_sum){0};
    memset(job->private, 0, sizeof job->private);
    int code = poise_pool_create(NULL, options, hooks, &pool);
    if (code < 0) {
        return code;
    }
    code = poise_pool_add(pool, &root, tree_bytes(&root));
    if (code == 0) {
        code = poise_pool_run(pool);
    }
    if (out) {
        *out = pool;
    } else {
        poise_pool_destroy(pool);
    }
    return code;
}

struct job job_of(struct tree tree)
{
    return (struct job){.tree = tree};
}
