/*
 * Trees for the tests of the walk: built with *at() calls only, so that they
 * can be deeper than PATH_MAX, and read back by a plain recursion, against
 * which the walk is compared.
 */
#ifndef POISE_TESTS_WALK_TREE_H
#define POISE_TESTS_WALK_TREE_H

#include <poise/core.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/** One task for each entry, or for each directory, in the walks that follow:
 * WALK_SINGLE_ENTRIES of walk/engine/internal.h. */
static inline void tree_single_entries(bool on)
{
    if (on) {
        setenv("POISE_WALK_SINGLE_ENTRIES", "1", 1);
    } else {
        unsetenv("POISE_WALK_SINGLE_ENTRIES");
    }
}

/** A set of strings, filled by several threads. */
struct tree_list {
    pthread_mutex_t lock;
    char **items;
    size_t count, cap;
};

static inline void tree_list_add(struct tree_list *list, const char *text,
                                 size_t len)
{
    pthread_mutex_lock(&list->lock);
    if (list->count == list->cap) {
        list->cap = list->cap ? 2 * list->cap : 1024;
        list->items = realloc(list->items, list->cap * sizeof *list->items);
    }
    list->items[list->count++] = strndup(text, len);
    pthread_mutex_unlock(&list->lock);
}

static inline int tree_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline void tree_list_sort(struct tree_list *list)
{
    if (list->count > 0) {
        qsort(list->items, list->count, sizeof *list->items, tree_compare);
    }
}

static inline void tree_list_free(struct tree_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
    memset(list, 0, sizeof *list);
}

/** Whether two sorted lists are the same; says where not. */
static inline bool tree_list_equal(const struct tree_list *a,
                                   const struct tree_list *b)
{
    for (size_t i = 0; i < a->count || i < b->count; i++) {
        const char *x = i < a->count ? a->items[i] : "(end)";
        const char *y = i < b->count ? b->items[i] : "(end)";
        if (strcmp(x, y) != 0) {
            fprintf(stderr, "item %zu of %zu and %zu: '%s', '%s'\n", i,
                    a->count, b->count, x, y);
            return false;
        }
    }
    return true;
}

static inline void tree_file(int dirfd, const char *name)
{
    int fd = openat(dirfd, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd >= 0) {
        close(fd);
    }
}

/** Make the directory and open it. */
static inline int tree_dir(int dirfd, const char *name)
{
    mkdirat(dirfd, name, 0755);
    return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/** Links, odd names, pipes, hard links, a lopsided subtree, empty ones. */
static inline void tree_nasty(int root)
{
    static const char *const names[] = {
        "a\nnewline", " leading", "-rf", "\xff\xfe not UTF-8",
        "pi|pe",      "*",        "...",
    };
    char name[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tree_file(root, names[i]);
        int fd = tree_dir(root, strcat(strcpy(name, names[i]), "-dir"));
        tree_file(fd, names[i]);
        close(fd);
    }
    memset(name, 'n', 255);
    name[255] = '\0';
    tree_file(root, name);
    symlinkat("nowhere", root, "dangling");
    symlinkat(".", root, "loop");
    symlinkat("wide", root, "to-dir");
    mkfifoat(root, "pipe", 0644);
    linkat(root, "-rf", root, "hard", 0);
    close(tree_dir(root, "empty"));
    int wide = tree_dir(root, "wide");
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "sub%03d", i);
        int fd = tree_dir(wide, name);
        for (int k = 0; k < i % 7; k++) {
            snprintf(name, sizeof name, "file%d", k);
            tree_file(fd, name);
        }
        close(fd);
    }
    close(wide);
    int at = tree_dir(root, "lopsided");
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "level%d", i);
        int next = tree_dir(at, name);
        tree_file(at, "beside");
        close(tree_dir(at, "empty"));
        close(at);
        at = next;
    }
    close(at);
}

/** `depth` nested directories, a file in every hundredth. */
static inline void tree_chain(int root, int depth)
{
    int at = dup(root);
    for (int i = 0; i < depth; i++) {
        int next = tree_dir(at, "d");
        if (i % 100 == 0) {
            tree_file(next, "f");
        }
        close(at);
        at = next;
    }
    close(at);
}

/** `count` files in one directory. */
static inline void tree_flat(int root, const char *dir, int count)
{
    char name[64];
    int fd = tree_dir(root, dir);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%d-entry-%d", i * 7919 % 10007, i);
        tree_file(fd, name);
    }
    close(fd);
}

/** The paths of everything below `fd`, by plain recursion. Closes `fd`. */
static inline void tree_read(int fd, struct poise_buf *path,
                             struct tree_list *out)
{
    DIR *dir = fdopendir(fd);
    size_t len = path->len;
    struct dirent *d;
    while (dir && (d = readdir(dir)) != NULL) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) {
            continue;
        }
        if (len == 0 || path->data[len - 1] != '/') {
            poise_buf_putc(path, '/');
        }
        poise_buf_puts(path, d->d_name);
        tree_list_add(out, path->data, path->len);
        int below = openat(fd, d->d_name,
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC |
                               O_NONBLOCK);
        if (below >= 0) {
            tree_read(below, path, out);
        }
        path->len = len;
    }
    if (dir) {
        closedir(dir);
    }
}

/** All paths below and with `root`, sorted. */
static inline void tree_truth(const char *root, struct tree_list *out)
{
    struct poise_buf path = {0};
    poise_buf_puts(&path, root);
    tree_list_add(out, root, strlen(root));
    tree_read(open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC), &path, out);
    poise_buf_free(&path);
    tree_list_sort(out);
}

/* A chain is removed from above without recursion: its only subdirectory is
 * moved up, again and again. */
static inline void tree_remove(int parent, const char *name);

static inline void tree_empty(int fd)
{
    DIR *dir = fdopendir(dup(fd));
    struct dirent *d;
    while (dir && (d = readdir(dir)) != NULL) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) {
            continue;
        }
        if (unlinkat(fd, d->d_name, 0) != 0) {
            tree_remove(fd, d->d_name);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

static inline void tree_remove(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0) {
        int below = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        if (below < 0) {
            break;
        }
        renameat(fd, "d", parent, ".moving");
        tree_empty(fd);
        unlinkat(parent, name, AT_REMOVEDIR);
        renameat(parent, ".moving", parent, name);
        close(fd);
        fd = below;
    }
    if (fd >= 0) {
        tree_empty(fd);
        close(fd);
    }
    unlinkat(parent, name, AT_REMOVEDIR);
}

/** A fresh directory under $TMPDIR or /tmp; its path is put into `path`. */
static inline int tree_temporary(char path[256])
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, 256, "%s/poise-test-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

#endif
