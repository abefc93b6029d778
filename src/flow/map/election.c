/* The election: a thread renews the lease; what it knows, the map looks at. */
#include "election.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/** A lease is renewed so many times before it runs out. */
#define RENEWALS 4
/** Of a lease that part is not relied on, for clocks that go unequally. */
#define MARGIN 10
#define LOOK_NS UINT64_C(20000000)
#define WAIT_NS UINT64_C(250000000)
/** That a job is done is kept for those who wait for its map. */
#define DONE_S 60
/** "donedo" in base64: before the name of the map that did it. */
#define DONE "ZG9uZWRv"
/** How often etcd is asked at first before it is taken for not there. */
#define TRIES 8

enum { VALID, STALE };

struct map_election {
    struct map_etcd *etcd;
    const char *urls;
    struct poise_buf key, last_key; /**< in base64 */
    char own[40];                   /**< what this map calls itself, base64 */
    uint64_t ttl_s, turn;
    char lease[32]; /**< its number, as etcd writes it */
    atomic_uint_least64_t until_ns;
    atomic_int state; /**< STALE: another one was elected */
    atomic_bool stop;
    pthread_mutex_t calls; /**< one at a time */
    pthread_t thread;
    bool renews;
};

/* It goes on while the machine sleeps. */
static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int put_base64(const void *data, size_t len, struct poise_buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrs"
                                 "tuvwxyz0123456789+/";
    const unsigned char *in = data;
    for (size_t i = 0; i < len; i += 3) {
        size_t some = len - i < 3 ? len - i : 3;
        uint32_t word = (uint32_t)in[i] << 16 |
                        (some > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                        (some > 2 ? in[i + 2] : 0);
        for (size_t d = 0; d < 4; d++) {
            poise_buf_putc(out,
                           d <= some ? digits[word >> (18 - 6 * d) & 63] : '=');
        }
    }
    return out->error;
}

/* The text behind "name": in an answer, without quotes; false: none. */
static bool member(struct poise_buf *answer, const char *name, char *out,
                   size_t size)
{
    char wanted[40];
    snprintf(wanted, sizeof wanted, "\"%s\":", name);
    const char *at = strstr(poise_buf_str(answer), wanted);
    if (!at) {
        return false;
    }
    at += strlen(wanted);
    at += *at == '"';
    size_t len = strcspn(at, "\",}");
    if (len == 0 || len >= size) {
        return false;
    }
    memcpy(out, at, len);
    out[len] = '\0';
    return true;
}

static int call(struct map_election *e, const char *path,
                struct poise_buf *body, struct poise_buf *answer)
{
    pthread_mutex_lock(&e->calls);
    int code =
        body->error ? body->error : map_etcd_call(e->etcd, path, body, answer);
    pthread_mutex_unlock(&e->calls);
    poise_buf_free(body);
    return code;
}

static int bad_answer(const struct map_election *e)
{
    return poise_error_set(EPROTO, "be elected by etcd at", e->urls,
                           "its answer is not understood");
}

/* `until`: when it will have run out. */
static int lease_take(struct map_election *e, uint64_t *until)
{
    struct poise_buf body = {0}, answer = {0};
    uint64_t asked = clock_ns();
    poise_buf_printf(&body, "{\"TTL\":\"%llu\"}", (unsigned long long)e->ttl_s);
    int code = call(e, "/v3/lease/grant", &body, &answer);
    if (code == 0 && !member(&answer, "ID", e->lease, sizeof e->lease)) {
        code = bad_answer(e);
    }
    *until = asked + e->ttl_s * 1000000000;
    poise_buf_free(&answer);
    return code;
}

/* 1: renewed, 0: it has run out, negative: nobody knows. */
static int lease_renew(struct map_election *e, uint64_t *until)
{
    struct poise_buf body = {0}, answer = {0};
    uint64_t asked = clock_ns();
    char left[24];
    poise_buf_printf(&body, "{\"ID\":\"%s\"}", e->lease);
    int code = call(e, "/v3/lease/keepalive", &body, &answer);
    if (code == 0) {
        code = member(&answer, "TTL", left, sizeof left) && atoll(left) > 0;
    }
    if (code == 1) {
        *until = asked + e->ttl_s * 1000000000;
    }
    poise_buf_free(&answer);
    return code;
}

/* Make the key, if there is none, and say who was elected last. `again`: only
 * if that was this map. 1: elected, 0: not, negative. */
static int try_once(struct map_election *e, bool again,
                    struct poise_buf *answer)
{
    struct poise_buf body = {0};
    char revision[24], yes[8];
    poise_buf_printf(&body,
                     "{\"compare\":[{\"key\":\"%s\",\"target\":\"CREATE\","
                     "\"createRevision\":\"0\",\"result\":\"EQUAL\"}",
                     poise_buf_str(&e->key));
    if (again) {
        poise_buf_printf(&body,
                         ",{\"key\":\"%s\",\"target\":\"VALUE\",\"value\":"
                         "\"%s\",\"result\":\"EQUAL\"}",
                         poise_buf_str(&e->last_key), e->own);
    }
    poise_buf_printf(&body,
                     "],\"success\":[{\"requestPut\":{\"key\":\"%s\","
                     "\"value\":\"%s\",\"lease\":\"%s\"}},",
                     poise_buf_str(&e->key), e->own, e->lease);
    poise_buf_printf(&body,
                     "{\"requestPut\":{\"key\":\"%s\",\"value\":\"%s\"}}],"
                     "\"failure\":[{\"requestRange\":{\"key\":\"%s\"}},"
                     "{\"requestRange\":{\"key\":\"%s\"}}]}",
                     poise_buf_str(&e->last_key), e->own,
                     poise_buf_str(&e->key), poise_buf_str(&e->last_key));
    int code = call(e, "/v3/kv/txn", &body, answer);
    if (code < 0) {
        return code;
    }
    if (!member(answer, "succeeded", yes, sizeof yes)) {
        return 0; /* what is false is left out */
    }
    if (!again) {
        if (!member(answer, "revision", revision, sizeof revision)) {
            return bad_answer(e);
        }
        e->turn = strtoull(revision, NULL, 10);
    }
    return 1;
}

/* ---- the thread --------------------------------------------------------- */

/* The lease ran out, and the key with it: once more, if nobody else was elected
 * in between. An answer that was lost may have said yes: then the key is there,
 * and this map's. 1: elected, 0: another one is, negative: nobody knows. */
static int begin_again(struct map_election *e, uint64_t *until)
{
    struct poise_buf answer = {0};
    int code = lease_renew(e, until);
    code = code == 0 ? lease_take(e, until) : code < 0 ? code : 0;
    code = code == 0 ? try_once(e, true, &answer) : code;
    if (code == 0) {
        const char *at = strstr(poise_buf_str(&answer), e->own);
        /* The key's own value, and that of who was elected last. */
        bool both = at && strstr(at + 1, e->own);
        code = both ? 1 : at ? -EAGAIN : 0;
    }
    poise_buf_free(&answer);
    return code;
}

static void *renew(void *arg)
{
    struct map_election *e = arg;
    uint64_t period = e->ttl_s * 1000000000 / RENEWALS, next = clock_ns();
    bool elected = true;
    while (!atomic_load(&e->stop) && atomic_load(&e->state) != STALE) {
        if (clock_ns() >= next) {
            uint64_t until = 0;
            int code =
                elected ? lease_renew(e, &until) : begin_again(e, &until);
            if (code == 1) {
                elected = true;
                atomic_store(&e->until_ns, until);
            } else if (code == 0 && !elected) {
                atomic_store(&e->state, STALE);
            }
            elected = elected && code != 0;
            next = clock_ns() + (code == 1 ? period : WAIT_NS);
        }
        poise_sleep_ns(LOOK_NS);
    }
    return NULL;
}

/* ---- what the map sees -------------------------------------------------- */

bool map_election_holds(struct map_election *election)
{
    if (!election) {
        return true;
    }
    uint64_t margin = election->ttl_s * 1000000000 / MARGIN;
    return atomic_load(&election->state) == VALID &&
           clock_ns() + margin < atomic_load(&election->until_ns);
}

static int stale(const struct map_election *e)
{
    return poise_error_set(ESTALE, "go on as map", NULL,
                           "etcd at %s has elected another one, which goes on",
                           e->urls);
}

int map_election_wait(struct map_election *election, map_notice *notice,
                      void *arg)
{
    bool told = false;
    while (!map_election_holds(election)) {
        if (atomic_load(&election->state) == STALE) {
            return stale(election);
        }
        if (!told && notice) {
            notice("the lease of etcd has run out: nothing goes on until it is "
                   "there again",
                   arg);
        }
        told = true;
        poise_sleep_ns(LOOK_NS);
    }
    if (told && notice) {
        notice("the lease is there again", arg);
    }
    return 0;
}

/* 1: all know that it is done, 0: another one is elected, negative. */
static int say_done(struct map_election *e)
{
    struct poise_buf body = {0}, answer = {0};
    char lease[32], yes[8];
    /* A lease of its own: what is done stays so for a while. */
    poise_buf_printf(&body, "{\"TTL\":\"%d\"}", DONE_S);
    int code = call(e, "/v3/lease/grant", &body, &answer);
    if (code == 0 && !member(&answer, "ID", lease, sizeof lease)) {
        code = bad_answer(e);
    }
    if (code == 0) {
        const char *key = poise_buf_str(&e->key);
        poise_buf_printf(
            &body,
            "{\"compare\":[{\"key\":\"%s\",\"target\":\"VALUE\",\"value\":"
            "\"%s\",\"result\":\"EQUAL\"}],\"success\":[{\"requestPut\":{"
            "\"key\":\"%s\",\"value\":\"" DONE "%s\",\"lease\":\"%s\"}}],"
            "\"failure\":[{\"requestRange\":{\"key\":\"%s\"}}]}",
            key, e->own, key, e->own, lease, key);
        code = call(e, "/v3/kv/txn", &body, &answer);
    }
    if (code == 0) {
        /* Or it said so already, and the answer was lost. */
        code = member(&answer, "succeeded", yes, sizeof yes) ||
               strstr(poise_buf_str(&answer), e->own) != NULL;
    }
    poise_buf_free(&answer);
    return code;
}

int map_election_done(struct map_election *election, map_notice *notice,
                      void *arg)
{
    bool told = false;
    int code = 1;
    while (election && (code = say_done(election)) < 0 &&
           atomic_load(&election->state) == VALID) {
        if (!told && notice) {
            notice("all is done, but etcd does not answer: waiting for it",
                   arg);
        }
        told = true;
        poise_sleep_ns(WAIT_NS);
    }
    return code == 1 ? 0 : stale(election);
}

static int wait_for_turn(struct map_election *e, map_notice *notice, void *arg)
{
    struct poise_buf answer = {0};
    bool told = false, away = false;
    unsigned failures = 0;
    uint64_t until = 0;
    int code;
    for (;;) {
        int renewed = e->lease[0] ? lease_renew(e, &until) : 0;
        code = renewed == 0 ? lease_take(e, &until) : renewed < 0 ? renewed : 0;
        code = code == 0 ? try_once(e, false, &answer) : code;
        if (code < 0 && (told || ++failures < TRIES)) {
            if (told && !away && notice) {
                notice("etcd cannot be reached: this map waits for it", arg);
            }
            away = told;
            poise_sleep_ns(WAIT_NS); /* it may only be slow, or be starting */
            continue;
        }
        if (code >= 0 && away && notice) {
            notice("etcd is reached again", arg);
        }
        away = away && code < 0;
        if (code != 0) {
            break;
        }
        if (strstr(poise_buf_str(&answer), "\"" DONE)) {
            code = poise_error_set(EALREADY, "run job", NULL,
                                   "another map has done it just now");
            break;
        }
        if (!told && notice) {
            notice("another map has the job: this one waits", arg);
        }
        told = true;
        poise_sleep_ns(WAIT_NS);
    }
    atomic_store(&e->until_ns, code == 1 ? until : 0);
    if (code == 1 && told && notice) {
        notice("elected: this map takes over", arg);
    }
    poise_buf_free(&answer);
    return code;
}

int map_election_open(const char *urls, const char *name, uint64_t ttl_ns,
                      map_notice *notice, void *arg, uint64_t *turn,
                      struct map_election **out)
{
    struct map_election *e = poise_alloc(1, sizeof *e);
    struct poise_buf text = {0};
    unsigned char own[18]; /* a multiple of three: no '=' at the end */
    if (!e) {
        return -ENOMEM;
    }
    pthread_mutex_init(&e->calls, NULL);
    e->urls = urls;
    e->ttl_s = (ttl_ns + 999999999) / 1000000000;
    e->ttl_s = e->ttl_s < 2 ? 2 : e->ttl_s;
    poise_buf_printf(&text, "/poise/flow%s", name);
    put_base64(text.data, text.len, &e->key);
    poise_buf_puts(&text, "/last");
    put_base64(text.data, text.len, &e->last_key);
    poise_buf_reset(&text);
    int code = getrandom(own, sizeof own, 0) == sizeof own ? 0 : -EIO;
    put_base64(own, sizeof own, &text);
    snprintf(e->own, sizeof e->own, "%s", poise_buf_str(&text));
    if (code == 0 && (text.error || e->key.error || e->last_key.error)) {
        code = -ENOMEM;
    }
    poise_buf_free(&text);
    code = code == 0 ? map_etcd_open(urls, &e->etcd) : code;
    code = code == 0 ? wait_for_turn(e, notice, arg) : code;
    if (code == 1) {
        code = -pthread_create(&e->thread, NULL, renew, e);
        e->renews = code == 0;
    }
    if (code < 0) {
        map_election_close(e);
        return code;
    }
    *turn = e->turn;
    *out = e;
    return 0;
}

void map_election_close(struct map_election *election)
{
    struct poise_buf body = {0}, answer = {0};
    if (!election) {
        return;
    }
    atomic_store(&election->stop, true);
    if (election->renews) {
        pthread_join(election->thread, NULL);
    }
    if (election->etcd && election->lease[0]) {
        poise_buf_printf(&body, "{\"ID\":\"%s\"}", election->lease);
        (void)call(election, "/v3/lease/revoke", &body, &answer);
    }
    poise_buf_free(&answer);
    poise_buf_free(&election->key);
    poise_buf_free(&election->last_key);
    map_etcd_close(election->etcd);
    pthread_mutex_destroy(&election->calls);
    free(election);
}
