/* Files that several threads work on: whose turn it is, who is the last. */
#include "internal.h"

void tar_job_init(struct tar_job *job, uint64_t chunks)
{
    *job = (struct tar_job){.refs = 1, .chunks = chunks};
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->turned, NULL);
}

void tar_job_destroy(struct tar_job *job)
{
    pthread_mutex_destroy(&job->lock);
    pthread_cond_destroy(&job->turned);
}

void tar_job_reset(struct tar_job *job)
{
    pthread_mutex_lock(&job->lock);
    job->next = job->turn = job->done = job->hash = 0;
    pthread_mutex_unlock(&job->lock);
}

int tar_job_error(struct tar_job *job)
{
    pthread_mutex_lock(&job->lock);
    int code = job->error;
    pthread_mutex_unlock(&job->lock);
    return code;
}

bool tar_job_take(struct tar_job *job, uint64_t *chunk)
{
    pthread_mutex_lock(&job->lock);
    bool is = job->next < job->chunks && job->error == 0;
    *chunk = job->next;
    job->next += is;
    pthread_mutex_unlock(&job->lock);
    return is;
}

int tar_job_turn(struct tar_job *job, uint64_t chunk)
{
    pthread_mutex_lock(&job->lock);
    while (job->turn != chunk && job->error == 0) {
        pthread_cond_wait(&job->turned, &job->lock);
    }
    int code = job->error;
    if (code < 0) {
        pthread_mutex_unlock(&job->lock);
    }
    return code;
}

void tar_job_turned(struct tar_job *job, uint64_t hash)
{
    job->hash = tar_hash_join(job->hash, job->turn, hash);
    job->turn++;
    pthread_cond_broadcast(&job->turned);
    pthread_mutex_unlock(&job->lock);
}

bool tar_job_done(struct tar_job *job, int code)
{
    pthread_mutex_lock(&job->lock);
    job->done++;
    if (code < 0 && job->error == 0) {
        job->error = code;
        pthread_cond_broadcast(&job->turned);
    }
    bool last = job->done == (job->error ? job->next : job->chunks);
    pthread_mutex_unlock(&job->lock);
    return last;
}

/* ---- the table ---------------------------------------------------------- */

void tar_jobs_init(struct tar_jobs *jobs)
{
    *jobs = (struct tar_jobs){0};
    pthread_mutex_init(&jobs->lock, NULL);
}

void tar_jobs_free(struct tar_jobs *jobs)
{
    pthread_mutex_destroy(&jobs->lock);
}

bool tar_jobs_add(struct tar_jobs *jobs, struct tar_job *job)
{
    bool added = false;
    pthread_mutex_lock(&jobs->lock);
    for (int i = 0; i < TAR_JOBS_MOST && !added; i++) {
        if (!jobs->slots[i]) {
            tar_job_share(job);
            job->id = ++jobs->ids;
            jobs->slots[i] = job;
            added = true;
        }
    }
    pthread_mutex_unlock(&jobs->lock);
    return added;
}

struct tar_job *tar_jobs_join(struct tar_jobs *jobs, uint64_t id)
{
    struct tar_job *found = NULL;
    pthread_mutex_lock(&jobs->lock);
    for (int i = 0; i < TAR_JOBS_MOST && !found; i++) {
        struct tar_job *job = jobs->slots[i];
        found = job && job->id == id ? job : NULL;
    }
    if (found) {
        tar_job_share(found);
    }
    pthread_mutex_unlock(&jobs->lock);
    return found;
}

bool tar_jobs_remove(struct tar_jobs *jobs, struct tar_job *job)
{
    bool was = false;
    pthread_mutex_lock(&jobs->lock);
    for (int i = 0; i < TAR_JOBS_MOST; i++) {
        was |= jobs->slots[i] == job;
        jobs->slots[i] = jobs->slots[i] == job ? NULL : jobs->slots[i];
    }
    pthread_mutex_unlock(&jobs->lock);
    return was;
}
