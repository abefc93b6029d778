/*
 * Memory, as a rank's copies ask the C library for it, where contexts are
 * swapped: it comes from the rank's own heap. What the C library allocates by
 * itself stays its own: blocks are told apart by their addresses.
 */
#include "libc_wrap.h"
#include "vrank/context/context.h"
#include "vrank/thread/rank.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define SHIM_PAGE ((size_t)4096)

/* ---- blocks ------------------------------------------------------------- */

static void *shim_no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* What a heap gave, or nothing; the heap is given back. */
static void *shim_given(struct heap *heap, void *data, size_t bytes)
{
    if (data == NULL) {
        context_refused(heap, bytes);
        errno = ENOMEM;
    }
    context_unlock(heap);
    return data;
}

/* On a thread that is no rank's: the C library's. */
static void *shim_get(size_t align, size_t bytes, bool zeroed)
{
    struct heap *heap = context_lock();

    if (heap == NULL) {
        return align > 16 ? aligned_alloc(align, bytes)
               : zeroed   ? calloc(bytes, 1)
                          : malloc(bytes);
    }
    void *data = zeroed ? heap_alloc_zero(heap, align, bytes)
                        : heap_alloc(heap, align, bytes);
    return shim_given(heap, data, bytes);
}

void *shim_malloc(size_t bytes)
{
    return shim_get(16, bytes, false);
}

static void *shim_calloc(size_t count, size_t size)
{
    size_t bytes;

    return __builtin_mul_overflow(count, size, &bytes)
               ? shim_no_memory()
               : shim_get(16, bytes, true);
}

void shim_free(void *ptr)
{
    if (!context_covers(ptr)) {
        free(ptr);
        return;
    }
    int saved = errno;
    struct heap *heap = context_lock_of(ptr);
    /* Another rank's is not to be touched: as if it were in use for ever. */
    if (heap != NULL) {
        heap_release(heap, ptr);
        context_unlock(heap);
    }
    errno = saved;
}

static void *shim_realloc(void *ptr, size_t bytes)
{
    if (ptr == NULL) {
        return shim_malloc(bytes);
    }
    if (!context_covers(ptr)) {
        return realloc(ptr, bytes);
    }
    if (bytes == 0) {
        shim_free(ptr);
        return NULL;
    }
    struct heap *heap = context_lock_of(ptr);
    if (heap == NULL) {
        return shim_no_memory();
    }
    return shim_given(heap, heap_realloc(heap, ptr, bytes), bytes);
}

static void *shim_reallocarray(void *ptr, size_t count, size_t size)
{
    size_t bytes;

    return __builtin_mul_overflow(count, size, &bytes)
               ? shim_no_memory()
               : shim_realloc(ptr, bytes);
}

static size_t shim_malloc_usable_size(void *ptr)
{
    return ptr != NULL && context_covers(ptr) ? heap_usable(ptr)
                                              : malloc_usable_size(ptr);
}

static void *shim_aligned_alloc(size_t align, size_t bytes)
{
    if (align == 0 || (align & (align - 1)) != 0) {
        errno = EINVAL;
        return NULL;
    }
    return shim_get(align, bytes, false);
}

static int shim_posix_memalign(void **out, size_t align, size_t bytes)
{
    int saved = errno;

    if (align < sizeof(void *) || (align & (align - 1)) != 0) {
        return EINVAL;
    }
    void *data = shim_get(align, bytes, false);
    errno = saved;
    if (data == NULL) {
        return ENOMEM;
    }
    *out = data;
    return 0;
}

static void *shim_valloc(size_t bytes)
{
    return shim_get(SHIM_PAGE, bytes, false);
}

static void *shim_pvalloc(size_t bytes)
{
    return shim_get(SHIM_PAGE, (bytes + SHIM_PAGE - 1) & ~(SHIM_PAGE - 1),
                    false);
}

/* ---- functions that allocate -------------------------------------------- */

static char *shim_strndup(const char *text, size_t most)
{
    size_t len = strnlen(text, most);
    char *copy = shim_malloc(len + 1);

    if (copy != NULL) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return copy;
}

static char *shim_strdup(const char *text)
{
    return shim_strndup(text, SIZE_MAX);
}

static int shim_vasprintf(char **out, const char *format, va_list args)
{
    va_list again;

    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    *out = len >= 0 ? shim_malloc((size_t)len + 1) : NULL;
    if (*out == NULL) {
        return -1;
    }
    return vsnprintf(*out, (size_t)len + 1, format, args);
}

static int shim_asprintf(char **out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int shim_asprintf(char **out, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int len = shim_vasprintf(out, format, args);
    va_end(args);
    return len;
}

static int shim_vasprintf_chk(char **out, int flag, const char *format,
                              va_list args)
{
    (void)flag;
    return shim_vasprintf(out, format, args);
}

static int shim_asprintf_chk(char **out, int flag, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int shim_asprintf_chk(char **out, int flag, const char *format, ...)
{
    va_list args;

    (void)flag;
    va_start(args, format);
    int len = shim_vasprintf(out, format, args);
    va_end(args);
    return len;
}

/* The C library would make the caller's buffer longer by its own means. */
static ssize_t shim_getdelim(char **line, size_t *room, int end, FILE *stream)
{
    size_t len = 0;
    int c = EOF;

    if (line == NULL || room == NULL) {
        errno = EINVAL;
        return -1;
    }
    if (*line == NULL) {
        *room = 0;
    }
    flockfile(stream);
    do {
        if (len + 2 > *room) {
            size_t more = *room < 60 ? 120 : *room * 2;
            char *grown = shim_realloc(*line, more);
            if (grown == NULL) {
                funlockfile(stream);
                return -1;
            }
            *line = grown;
            *room = more;
        }
        c = getc_unlocked(stream);
        if (c != EOF) {
            (*line)[len++] = (char)c;
        }
    } while (c != EOF && c != end);
    funlockfile(stream);
    if (*room > 0) {
        (*line)[len] = '\0';
    }
    return len > 0 ? (ssize_t)len : -1;
}

static ssize_t shim_getline(char **line, size_t *room, FILE *stream)
{
    return shim_getdelim(line, room, '\n', stream);
}

/* ---- mappings ----------------------------------------------------------- */

static void *shim_mmap(void *at, size_t bytes, int protection, int flags,
                       int fd, off_t offset)
{
    struct heap *heap = NULL;
    int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    int harmless = kind | MAP_NORESERVE | MAP_POPULATE | MAP_STACK;

    if (protection == (PROT_READ | PROT_WRITE) && (flags & kind) == kind &&
        (flags & ~harmless) == 0 && bytes > 0) {
        heap = context_lock();
    }
    if (heap == NULL) {
        return mmap(at, bytes, protection, flags, fd, offset);
    }
    void *data = shim_given(heap, heap_map(heap, bytes), bytes);
    return data != NULL ? data : MAP_FAILED;
}

static int shim_munmap(void *at, size_t bytes)
{
    if (!context_covers(at)) {
        return munmap(at, bytes);
    }
    size_t whole = (bytes + SHIM_PAGE - 1) & ~(SHIM_PAGE - 1);
    if (((uintptr_t)at & (SHIM_PAGE - 1)) != 0 || bytes == 0) {
        errno = EINVAL;
        return -1;
    }
    struct heap *heap = context_lock_of(at);
    if (heap == NULL) {
        return 0;
    }
    heap_unmap(heap, at, whole);
    context_unlock(heap);
    return 0;
}

static void *shim_mremap(void *at, size_t was, size_t bytes, int flags, ...)
{
    va_list args;

    va_start(args, flags);
    void *to = (flags & MREMAP_FIXED) != 0 ? va_arg(args, void *) : NULL;
    va_end(args);
    if (!context_covers(at)) {
        return mremap(at, was, bytes, flags, to);
    }
    if (bytes <= was) {
        size_t page = SHIM_PAGE - 1, keep = (bytes + page) & ~page;
        if (keep < was) {
            shim_munmap((char *)at + keep, was - keep);
        }
        return at;
    }
    void *data = MAP_FAILED;
    if (flags == MREMAP_MAYMOVE) {
        data = shim_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (data == MAP_FAILED) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    memcpy(data, at, was);
    shim_munmap(at, was);
    return data;
}

/* ---- what keeps addresses ----------------------------------------------- */

/* A stream may be flushed while its rank's context is not there. */
static int shim_setvbuf(FILE *stream, char *buffer, int mode, size_t bytes)
{
    return setvbuf(stream, context_covers(buffer) ? NULL : buffer, mode, bytes);
}

static void shim_setbuf(FILE *stream, char *buffer)
{
    shim_setvbuf(stream, buffer, buffer != NULL ? _IOFBF : _IONBF, BUFSIZ);
}

/* A thread may touch its rank's memory at any time. */
static int shim_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                               void *(*body)(void *arg), void *arg)
{
    const struct vrank *self = vrank_self();

    if (self != NULL && self->context != NULL) {
        context_stay(self->context);
    }
    return pthread_create(thread, attr, body, arg);
}

const struct shim shim_heap[] = {
    SHIM(malloc),
    SHIM(calloc),
    SHIM(free),
    SHIM(realloc),
    SHIM(reallocarray),
    SHIM(malloc_usable_size),
    SHIM(aligned_alloc),
    {"memalign", (void (*)(void))shim_aligned_alloc},
    SHIM(posix_memalign),
    SHIM(valloc),
    SHIM(pvalloc),
    SHIM(strdup),
    {"__strdup", (void (*)(void))shim_strdup},
    SHIM(strndup),
    SHIM(vasprintf),
    SHIM(asprintf),
    {"__vasprintf_chk", (void (*)(void))shim_vasprintf_chk},
    {"__asprintf_chk", (void (*)(void))shim_asprintf_chk},
    SHIM(getdelim),
    {"__getdelim", (void (*)(void))shim_getdelim},
    SHIM(getline),
    SHIM(mmap),
    {"mmap64", (void (*)(void))shim_mmap},
    SHIM(munmap),
    SHIM(mremap),
    SHIM(setvbuf),
    SHIM(setbuf),
    SHIM(pthread_create),
    {NULL, NULL},
};
