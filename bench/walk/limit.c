/*
 * The physical limit of a tree walk: what the kernel allows. A bare loop of
 * getdents64, and with -s of openat-relative statx, in a number of threads;
 * nothing is printed, sorted or kept.
 *
 * usage: limit [-s] [-t THREADS] DIR
 *
 * Threads take directories from one shared stack. While one of them is idle,
 * buffers full of names that still want their statx are handed on, too, so
 * that a single flat directory occupies them all.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES 65536
/* Fewer names are not worth handing on. */
#define HAND_ON_BYTES 1024
#define MAX_THREADS 256

struct entry {
    uint64_t ino;
    int64_t off;
    unsigned short reclen;
    unsigned char type;
    char name[];
};

/* An open directory; closed when nobody works on its names any more. */
struct dir {
    int fd;
    int users; /* __atomic */
    char path[];
};

/* Either a directory to read (path) or names of one (dir, names). */
struct item {
    struct item *next;
    char *path;
    struct dir *dir;
    char *names;
    size_t len;
};

struct counts {
    uint64_t entries, dirs, bytes, errors;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct item *top;
    int idle; /* written under the lock, read by everybody: __atomic */
    int threads;
    bool with_stat, done;
    struct counts counts;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .more = PTHREAD_COND_INITIALIZER,
          .threads = 1};

static void *need(void *memory)
{
    if (!memory) {
        fprintf(stderr, "limit: out of memory\n");
        exit(1);
    }
    return memory;
}

static void push(struct item item)
{
    struct item *copy = need(malloc(sizeof *copy));
    *copy = item;
    pthread_mutex_lock(&pool.lock);
    copy->next = pool.top;
    pool.top = copy;
    if (pool.idle) {
        pthread_cond_signal(&pool.more);
    }
    pthread_mutex_unlock(&pool.lock);
}

/* The next item; false when everything is done. */
static bool pop(struct item *out)
{
    pthread_mutex_lock(&pool.lock);
    __atomic_add_fetch(&pool.idle, 1, __ATOMIC_RELAXED);
    while (!pool.top && !pool.done) {
        if (pool.idle == pool.threads) {
            pool.done = true;
            pthread_cond_broadcast(&pool.more);
            break;
        }
        pthread_cond_wait(&pool.more, &pool.lock);
    }
    struct item *item = pool.top;
    if (item) {
        pool.top = item->next;
        __atomic_sub_fetch(&pool.idle, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&pool.lock);
    if (!item) {
        return false;
    }
    *out = *item;
    free(item);
    return true;
}

static void let_go(struct dir *dir)
{
    if (__atomic_sub_fetch(&dir->users, 1, __ATOMIC_ACQ_REL) == 0) {
        close(dir->fd);
        free(dir);
    }
}

static void push_child(const struct dir *dir, const char *name)
{
    size_t a = strlen(dir->path);
    size_t b = strlen(name) + 1;
    char *path = need(malloc(a + 1 + b));
    memcpy(path, dir->path, a);
    path[a] = '/';
    memcpy(path + a + 1, name, b);
    push((struct item){.path = path});
}

static void do_names(struct dir *dir, const char *names, size_t len,
                     struct counts *counts)
{
    for (size_t at = 0; at < len;) {
        const struct entry *entry = (const struct entry *)(names + at);
        at += entry->reclen;
        const char *name = entry->name;
        if (name[0] == '.' &&
            (!name[1] || (name[1] == '.' && name[2] == '\0'))) {
            continue;
        }
        counts->entries++;
        bool is_dir = entry->type == DT_DIR;
        if (pool.with_stat || entry->type == DT_UNKNOWN) {
            struct statx st;
            if (statx(dir->fd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
                      STATX_BASIC_STATS, &st)) {
                counts->errors++;
                continue;
            }
            counts->bytes += st.stx_size;
            is_dir = S_ISDIR(st.stx_mode);
        }
        if (is_dir) {
            push_child(dir, name);
        }
    }
}

static void do_dir(char *path, char **buffer, struct counts *counts)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        counts->errors++;
        return;
    }
    size_t len = strlen(path) + 1;
    struct dir *dir = need(malloc(sizeof *dir + len));
    dir->fd = fd;
    dir->users = 1;
    memcpy(dir->path, path, len);
    counts->dirs++;
    for (;;) {
        long got = syscall(SYS_getdents64, fd, *buffer, (size_t)BUFFER_BYTES);
        if (got <= 0) {
            counts->errors += got < 0;
            break;
        }
        if (pool.with_stat && got > HAND_ON_BYTES &&
            __atomic_load_n(&pool.idle, __ATOMIC_RELAXED)) {
            __atomic_add_fetch(&dir->users, 1, __ATOMIC_RELAXED);
            push((struct item){
                .dir = dir, .names = *buffer, .len = (size_t)got});
            *buffer = need(malloc(BUFFER_BYTES));
        } else {
            do_names(dir, *buffer, (size_t)got, counts);
        }
    }
    let_go(dir);
}

static void *work(void *arg)
{
    (void)arg;
    struct counts counts = {0};
    char *buffer = need(malloc(BUFFER_BYTES));
    struct item item;
    while (pop(&item)) {
        if (item.path) {
            do_dir(item.path, &buffer, &counts);
            free(item.path);
        } else {
            do_names(item.dir, item.names, item.len, &counts);
            let_go(item.dir);
            free(item.names);
        }
    }
    free(buffer);
    pthread_mutex_lock(&pool.lock);
    pool.counts.entries += counts.entries;
    pool.counts.dirs += counts.dirs;
    pool.counts.bytes += counts.bytes;
    pool.counts.errors += counts.errors;
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    int letter;
    while ((letter = getopt(argc, argv, "st:")) != -1) {
        if (letter == 's') {
            pool.with_stat = true;
        } else if (letter == 't') {
            pool.threads = atoi(optarg);
        }
    }
    if (optind != argc - 1 || pool.threads < 1 || pool.threads > MAX_THREADS) {
        fprintf(stderr, "usage: limit [-s] [-t THREADS] DIR\n");
        return 2;
    }
    double began = now();
    pool.counts.entries = 1;
    push((struct item){.path = need(strdup(argv[optind]))});
    pthread_t threads[MAX_THREADS];
    for (int i = 1; i < pool.threads; i++) {
        if (pthread_create(&threads[i], NULL, work, NULL)) {
            fprintf(stderr, "limit: cannot start %d threads\n", pool.threads);
            return 1;
        }
    }
    work(NULL);
    for (int i = 1; i < pool.threads; i++) {
        pthread_join(threads[i], NULL);
    }
    double took = now() - began;
    printf("%llu entries, %llu directories, %llu bytes, %llu errors, "
           "%.3f s, %.2f M/s\n",
           (unsigned long long)pool.counts.entries,
           (unsigned long long)pool.counts.dirs,
           (unsigned long long)pool.counts.bytes,
           (unsigned long long)pool.counts.errors, took,
           (double)pool.counts.entries / took / 1e6);
    return pool.counts.errors ? 1 : 0;
}
