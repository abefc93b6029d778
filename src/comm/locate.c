/*
 * Where this process is: the site by a file, the node by what the kernel says
 * of itself, the NUMA domain by hwloc. It is looked up only in worlds of
 * several ranks.
 */
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* More than any file that is read here. */
#define SMALL_MOST ((size_t)16 << 20)

/* A whole small file into `out`. */
static int read_small(const char *path, struct poise_buf *out)
{
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    ssize_t got = 0;
    do {
        char *to = poise_buf_reserve(out, 4096);
        got = to ? poise_file_read(fd, to, 4096, path) : -ENOMEM;
        out->len += got > 0 ? (size_t)got : 0;
    } while (got > 0 && out->len <= SMALL_MOST);
    int code = poise_file_close(fd, path);
    if (got > 0) {
        return poise_error_set(EFBIG, "read", path, NULL);
    }
    return got < 0 ? (int)got : code;
}

static int copy_text(const char *text, char **out)
{
    size_t len = strlen(text) + 1;
    char *copy = poise_realloc(NULL, len, 1);
    if (!copy) {
        return -ENOMEM;
    }
    *out = memcpy(copy, text, len);
    return 0;
}

/* ---- the site ----------------------------------------------------------- */

/* Whether a line's pattern stands for this host, by its full or short name. */
static bool is_host(const char *pattern, const char *host)
{
    char brief[256];
    size_t len = strcspn(host, ".");
    if (len >= sizeof brief) {
        len = sizeof brief - 1;
    }
    memcpy(brief, host, len);
    brief[len] = '\0';
    return fnmatch(pattern, host, 0) == 0 || fnmatch(pattern, brief, 0) == 0;
}

const char *comm_site_of(char *text, const char *host)
{
    char *line_end;
    for (char *line = strtok_r(text, "\n", &line_end); line;
         line = strtok_r(NULL, "\n", &line_end)) {
        char *word_end;
        line[strcspn(line, "#")] = '\0';
        const char *pattern = strtok_r(line, " \t\r", &word_end);
        const char *site = strtok_r(NULL, " \t\r", &word_end);
        if (site && is_host(pattern, host)) {
            return site;
        }
    }
    return NULL;
}

/* Whether each line is a host and its site, or nothing: else that line is
 * named. */
static int check_sites(const char *path, const struct poise_buf *text)
{
    size_t at = 0;
    for (unsigned line = 1; at < text->len; line++) {
        const char *word = text->data + at;
        const char *end = memchr(word, '\n', text->len - at);
        unsigned words = 0;
        size_t len = end ? (size_t)(end - word) : text->len - at;
        at += len + 1;
        bool whole = !memchr(word, '\0', len);
        for (size_t i = 0; i < len && word[i] != '#'; i++) {
            bool space = strchr(" \t\r", word[i]) != NULL;
            bool begins = i == 0 || strchr(" \t\r", word[i - 1]) != NULL;
            words += !space && begins;
        }
        if (!whole || (words != 0 && words != 2)) {
            struct poise_buf where = {0};
            poise_buf_printf(&where, "%s:%u", path, line);
            int code =
                poise_error_set(EINVAL, "read the sites of hosts",
                                poise_buf_str(&where), "not 'HOST SITE'");
            poise_buf_free(&where);
            return code;
        }
    }
    return 0;
}

static int find_site(const char *path, const char *host, char **out)
{
    struct poise_buf text = {0};
    const char *site = "";
    int code = 0;
    if (path) {
        code = read_small(path, &text);
        if (code == 0) {
            code = check_sites(path, &text);
        }
        if (code == 0) {
            code = poise_buf_putc(&text, '\0');
        }
        site = code == 0 ? comm_site_of(text.data, host) : NULL;
        if (code == 0 && !site) {
            code = poise_error_set(EINVAL, "read the sites of hosts", path,
                                   "no line is about host %s", host);
        }
    }
    if (code == 0) {
        code = copy_text(site, out);
    }
    poise_buf_free(&text);
    return code;
}

/* ---- node and domain ---------------------------------------------------- */

/* Ranks share a node if they share a running kernel, whatever their host names
 * and whatever image their machines were copied from, and see each other's
 * processes: containers with process ids of their own share no memory. */
static int find_node(const char *host, char **out)
{
    struct poise_buf text = {0};
    struct stat ids;
    const char *name = host;
    if (read_small("/proc/sys/kernel/random/boot_id", &text) == 0 &&
        text.len > 0 && poise_buf_putc(&text, '\0') == 0) {
        text.len = strcspn(text.data, "\n");
        if (stat("/proc/self/ns/pid", &ids) == 0) {
            poise_buf_printf(&text, ":%llu", (unsigned long long)ids.st_ino);
        }
        name = poise_buf_str(&text);
    }
    int code = text.error ? text.error : copy_text(name, out);
    poise_buf_free(&text);
    return code;
}

/* Where the machine cannot say, or has only one: domain 0. hwloc takes longer
 * to look at a machine than the kernel to say that there is one domain. */
static int find_numa(void)
{
    struct poise_buf text = {0};
    bool one = read_small("/sys/devices/system/node/online", &text) == 0 &&
               text.len == 2 && memcmp(text.data, "0\n", 2) == 0;
    poise_buf_free(&text);
    if (one) {
        return 0;
    }
    void *module = comm_module_open("poise-numa.so", NULL);
    int (*here)(void) = NULL;
    if (module) {
        *(void **)&here = dlsym(module, "poise_numa_here");
    }
    int numa = here ? here() : 0;
    return numa < 0 ? 0 : numa;
}

int comm_place_find(const char *sites_file, struct comm_place *out)
{
    char host[HOST_NAME_MAX + 1] = "";
    struct comm_place place = {0};
    gethostname(host, sizeof host - 1);
    int code = find_site(sites_file, host, &place.site);
    if (code == 0) {
        code = find_node(host, &place.node);
    }
    if (code < 0) {
        comm_place_free(&place);
        return code;
    }
    place.numa = find_numa();
    *out = place;
    return 0;
}

void comm_place_free(struct comm_place *place)
{
    free(place->site);
    free(place->node);
    *place = (struct comm_place){0};
}
