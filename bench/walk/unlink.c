/*
 * The physical limit of removing a tree: two threads that read directories and
 * unlink what is in them, then rmdir, and keep nothing but paths. No errors are
 * handled, no link is looked out for: not for trees that somebody else uses.
 *
 * usage: unlink DIR
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 2, BUFFER_BYTES = 65536, DIRS_MOST = 1 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static char **dirs;                  /* parents before children */
static size_t count, taken, waiting; /* under the lock */

static void add(const char *parent, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", parent, name) < 0) {
        exit(1);
    }
    pthread_mutex_lock(&lock);
    if (count == DIRS_MOST) {
        exit(1);
    }
    dirs[count++] = path;
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&lock);
}

/* The next directory; NULL when all are done. */
static const char *next(void)
{
    const char *path = NULL;
    pthread_mutex_lock(&lock);
    waiting++;
    while (taken == count && waiting < THREADS) {
        pthread_cond_wait(&more, &lock);
    }
    if (taken < count) {
        path = dirs[taken++];
        waiting--;
    } else {
        pthread_cond_broadcast(&more);
    }
    pthread_mutex_unlock(&lock);
    return path;
}

static void empty(const char *path, char *buffer)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    long n;
    while ((n = syscall(SYS_getdents64, fd, buffer, BUFFER_BYTES)) > 0) {
        for (long at = 0; at < n;) {
            const struct dirent64 *d = (const void *)(buffer + at);
            at += d->d_reclen;
            if (d->d_type != DT_DIR) {
                unlinkat(fd, d->d_name, 0);
            } else if (strcmp(d->d_name, ".") != 0 &&
                       strcmp(d->d_name, "..") != 0) {
                add(path, d->d_name);
            }
        }
    }
    close(fd);
}

static void *run(void *arg)
{
    char *buffer = malloc(BUFFER_BYTES);
    const char *path;
    while (buffer && (path = next()) != NULL) {
        empty(path, buffer);
    }
    free(buffer);
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    dirs = calloc(DIRS_MOST, sizeof *dirs);
    if (argc != 2 || !dirs) {
        fprintf(stderr, "usage: unlink DIR\n");
        return 2;
    }
    dirs[count++] = strdup(argv[1]);
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, run, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    while (count > 0) {
        if (rmdir(dirs[--count]) != 0) {
            perror(dirs[count]);
            return 1;
        }
    }
    return 0;
}
