/* Threads that do one thing together, and the first error among them. */
#include "process.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct team {
    int (*fn)(void *arg, unsigned thread);
    void *arg;
    bool *stop;
    pthread_mutex_t lock;
    int code; /* the first failure, and its words */
    struct poise_buf doing, what, why;
};

struct member {
    struct team *team;
    pthread_t thread;
    unsigned number;
};

static void put_string(struct poise_buf *buf, const char *text)
{
    poise_buf_puts(buf, text);
    poise_buf_str(buf);
}

static void member_run(struct member *member)
{
    struct team *team = member->team;
    int code = team->fn(team->arg, member->number);

    if (code >= 0) {
        return;
    }
    pthread_mutex_lock(&team->lock);
    /* Who only saw that another failed says nothing. */
    if (code != -ECANCELED && team->code == 0) {
        const struct poise_error *err = poise_error_last();

        team->code = code;
        put_string(&team->doing, err->doing);
        put_string(&team->what, err->what);
        put_string(&team->why, err->why);
    }
    __atomic_store_n(team->stop, true, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&team->lock);
}

static void *member_main(void *arg)
{
    member_run(arg);
    return NULL;
}

static int team_end(struct team *team)
{
    int code = team->code;

    if (code < 0) {
        poise_error_set(-code, poise_buf_str(&team->doing),
                        poise_buf_str(&team->what), "%s",
                        poise_buf_str(&team->why));
    } else if (extmem_stopped(team->stop)) {
        code = poise_error_set(ECANCELED, "sort", NULL, NULL);
    }
    poise_buf_free(&team->doing);
    poise_buf_free(&team->what);
    poise_buf_free(&team->why);
    pthread_mutex_destroy(&team->lock);
    return code;
}

int extmem_team_run(unsigned threads, int (*fn)(void *arg, unsigned thread),
                    void *arg, bool *stop)
{
    struct team team = {.fn = fn, .arg = arg, .stop = stop};
    struct member *members = poise_alloc(threads, sizeof *members);
    unsigned started = 1;
    sigset_t all, before;
    int code = 0;

    if (!members) {
        /* Who exchanges messages for the threads waits for them or for this. */
        __atomic_store_n(stop, true, __ATOMIC_RELAXED);
        return -ENOMEM;
    }
    pthread_mutex_init(&team.lock, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < threads && code == 0) {
        members[started] = (struct member){.team = &team, .number = started};
        code = pthread_create(&members[started].thread, NULL, member_main,
                              &members[started]);
        started += code == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        /* Every part has its thread: without one there is no result. */
        pthread_mutex_lock(&team.lock);
        if (team.code == 0) {
            team.code = poise_error_set(code, "start a thread", NULL, NULL);
            put_string(&team.doing, "start");
            put_string(&team.what, "a thread");
            put_string(&team.why, strerror(code));
        }
        __atomic_store_n(stop, true, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&team.lock);
    } else {
        members[0] = (struct member){.team = &team, .number = 0};
        member_run(&members[0]);
    }
    for (unsigned i = 1; i < started; i++) {
        pthread_join(members[i].thread, NULL);
    }
    free(members);
    return team_end(&team);
}
