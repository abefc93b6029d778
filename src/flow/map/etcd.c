/*
 * etcd, by its JSON gateway: what an election takes of it. One call is one
 * POST; several servers are tried in turn. libcurl is loaded when it is needed.
 */
#include "election.h"

#include <poise/parts.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if POISE_HAVE_CURL

#include <dlfcn.h>

#include <curl/curl.h>

/** Of one server, for one call. */
#define CALL_MS 1500L
/** No answer of etcd's that is asked for here is as long. */
#define ANSWER_MOST 65536

struct map_etcd {
    void *library;
    CURL *handle;
    CURLcode (*set)(CURL *, CURLoption, ...);
    CURLcode (*perform)(CURL *);
    void (*reset)(CURL *);
    void (*cleanup)(CURL *);
    CURL *(*init)(void);
    const char *(*words)(CURLcode);
    const char *urls; /**< borrowed, parted by commas */
    unsigned turn;    /**< which of them answered last */
};

static size_t take(char *data, size_t size, size_t count, void *arg)
{
    struct poise_buf *answer = arg;
    if (answer->len + size * count > ANSWER_MOST ||
        poise_buf_append(answer, data, size * count) < 0) {
        return 0;
    }
    return size * count;
}

int map_etcd_open(const char *urls, struct map_etcd **out)
{
    struct map_etcd *etcd = poise_alloc(1, sizeof *etcd);
    if (!etcd) {
        return -ENOMEM;
    }
    etcd->urls = urls;
    etcd->library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    bool all = etcd->library != NULL;
#define FIND(member, name)                                                     \
    all = all && (*(void **)&etcd->member = dlsym(etcd->library, name)) != NULL
    FIND(set, "curl_easy_setopt");
    FIND(perform, "curl_easy_perform");
    FIND(reset, "curl_easy_reset");
    FIND(cleanup, "curl_easy_cleanup");
    FIND(init, "curl_easy_init");
    FIND(words, "curl_easy_strerror");
#undef FIND
    etcd->handle = all ? etcd->init() : NULL;
    if (!etcd->handle) {
        int code = poise_error_set(ENOTSUP, "reach etcd at", urls,
                                   "libcurl cannot be loaded");
        map_etcd_close(etcd);
        return code;
    }
    *out = etcd;
    return 0;
}

void map_etcd_close(struct map_etcd *etcd)
{
    if (etcd && etcd->handle) {
        etcd->cleanup(etcd->handle);
    }
    /* The library stays: it may have threads or handlers of its own. */
    free(etcd);
}

/* The URL that has this number of them. */
static bool url_of(const struct map_etcd *etcd, unsigned number,
                   const char *path, struct poise_buf *out)
{
    unsigned count = 1;
    for (const char *c = etcd->urls; *c; c++) {
        count += *c == ',';
    }
    const char *at = etcd->urls;
    for (number %= count; number > 0; number--) {
        at = strchr(at, ',') + 1;
    }
    size_t len = strcspn(at, ",");
    len -= len > 0 && at[len - 1] == '/';
    poise_buf_reset(out);
    poise_buf_append(out, at, len);
    return poise_buf_puts(out, path) == 0;
}

static int call_once(struct map_etcd *etcd, const char *url,
                     const struct poise_buf *body, struct poise_buf *answer)
{
    CURL *handle = etcd->handle;
    etcd->reset(handle);
    etcd->set(handle, CURLOPT_URL, url);
    etcd->set(handle, CURLOPT_POSTFIELDS, body->data);
    etcd->set(handle, CURLOPT_POSTFIELDSIZE, (long)body->len);
    etcd->set(handle, CURLOPT_WRITEFUNCTION, take);
    etcd->set(handle, CURLOPT_WRITEDATA, answer);
    etcd->set(handle, CURLOPT_TIMEOUT_MS, CALL_MS);
    etcd->set(handle, CURLOPT_NOSIGNAL, 1L);
    etcd->set(handle, CURLOPT_FAILONERROR, 1L);
    /* A job's servers are near: what proxies the environment names is not for
     * them. */
    etcd->set(handle, CURLOPT_NOPROXY, "*");
    CURLcode code = etcd->perform(handle);
    return code == CURLE_OK ? 0
                            : poise_error_set(ECONNREFUSED, "call etcd at", url,
                                              "%s", etcd->words(code));
}

int map_etcd_call(struct map_etcd *etcd, const char *path,
                  const struct poise_buf *body, struct poise_buf *answer)
{
    struct poise_buf url = {0};
    unsigned count = 1;
    int code = -ENOMEM;
    for (const char *c = etcd->urls; *c; c++) {
        count += *c == ',';
    }
    for (unsigned i = 0; i < count; i++) {
        poise_buf_reset(answer);
        code = url_of(etcd, etcd->turn, path, &url)
                   ? call_once(etcd, poise_buf_str(&url), body, answer)
                   : -ENOMEM;
        if (code == 0) {
            break;
        }
        etcd->turn++;
    }
    poise_buf_free(&url);
    return code;
}

#else

int map_etcd_open(const char *urls, struct map_etcd **out)
{
    (void)out;
    return poise_part_missing(POISE_PART_CURL, "reach etcd at", urls);
}

void map_etcd_close(struct map_etcd *etcd)
{
    (void)etcd;
}

int map_etcd_call(struct map_etcd *etcd, const char *path,
                  const struct poise_buf *body, struct poise_buf *answer)
{
    (void)etcd;
    (void)path;
    (void)body;
    (void)answer;
    return -ENOTSUP;
}

#endif
