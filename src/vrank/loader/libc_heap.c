/*
 * Memory, as a rank's private images ask the C library for it, where contexts
 * are swapped: it comes from the rank's own heap. What the C library allocates
 * by itself stays its own: a block's address says whose it is.
 */
#include "libc_wrap.h"
#include "vrank/context/context.h"
#include "vrank/thread/rank.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define WRAP_PAGE ((size_t)4096)

/* ---- blocks ------------------------------------------------------------- */

static void *wrap_no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* What a heap gave, or nothing; the heap is given back. */
static void *wrap_given(struct heap *heap, void *data, size_t bytes)
{
    if (data == NULL) {
        context_refused(heap, bytes);
        errno = ENOMEM;
    }
    context_unlock(heap);
    return data;
}

/* On a thread that is no rank's: the C library's. */
static void *wrap_get(size_t align, size_t bytes, bool zeroed)
{
    struct heap *heap = context_lock();

    if (heap == NULL) {
        return align > 16 ? aligned_alloc(align, bytes)
               : zeroed   ? calloc(bytes, 1)
                          : malloc(bytes);
    }
    void *data = zeroed ? heap_alloc_zero(heap, align, bytes)
                        : heap_alloc(heap, align, bytes);
    return wrap_given(heap, data, bytes);
}

void *wrap_malloc(size_t bytes)
{
    return wrap_get(16, bytes, false);
}

static void *wrap_calloc(size_t count, size_t size)
{
    size_t bytes;

    return __builtin_mul_overflow(count, size, &bytes)
               ? wrap_no_memory()
               : wrap_get(16, bytes, true);
}

void wrap_free(void *ptr)
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

static void *wrap_realloc(void *ptr, size_t bytes)
{
    if (ptr == NULL) {
        return wrap_malloc(bytes);
    }
    if (!context_covers(ptr)) {
        return realloc(ptr, bytes);
    }
    if (bytes == 0) {
        wrap_free(ptr);
        return NULL;
    }
    struct heap *heap = context_lock_of(ptr);
    if (heap == NULL) {
        return wrap_no_memory();
    }
    return wrap_given(heap, heap_realloc(heap, ptr, bytes), bytes);
}

static void *wrap_reallocarray(void *ptr, size_t count, size_t size)
{
    size_t bytes;

    return __builtin_mul_overflow(count, size, &bytes)
               ? wrap_no_memory()
               : wrap_realloc(ptr, bytes);
}

static size_t wrap_malloc_usable_size(void *ptr)
{
    return ptr != NULL && context_covers(ptr) ? heap_usable(ptr)
                                              : malloc_usable_size(ptr);
}

static void *wrap_aligned_alloc(size_t align, size_t bytes)
{
    if (align == 0 || (align & (align - 1)) != 0) {
        errno = EINVAL;
        return NULL;
    }
    return wrap_get(align, bytes, false);
}

static int wrap_posix_memalign(void **out, size_t align, size_t bytes)
{
    int saved = errno;

    if (align < sizeof(void *) || (align & (align - 1)) != 0) {
        return EINVAL;
    }
    void *data = wrap_get(align, bytes, false);
    errno = saved;
    if (data == NULL) {
        return ENOMEM;
    }
    *out = data;
    return 0;
}

static void *wrap_valloc(size_t bytes)
{
    return wrap_get(WRAP_PAGE, bytes, false);
}

static void *wrap_pvalloc(size_t bytes)
{
    return wrap_get(WRAP_PAGE, (bytes + WRAP_PAGE - 1) & ~(WRAP_PAGE - 1),
                    false);
}

/* ---- functions that allocate -------------------------------------------- */

static char *wrap_strndup(const char *text, size_t most)
{
    size_t len = strnlen(text, most);
    char *copy = wrap_malloc(len + 1);

    if (copy != NULL) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return copy;
}

static char *wrap_strdup(const char *text)
{
    return wrap_strndup(text, SIZE_MAX);
}

static int wrap_vasprintf(char **out, const char *format, va_list args)
{
    va_list again;

    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    *out = len >= 0 ? wrap_malloc((size_t)len + 1) : NULL;
    if (*out == NULL) {
        return -1;
    }
    return vsnprintf(*out, (size_t)len + 1, format, args);
}

static int wrap_asprintf(char **out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int wrap_asprintf(char **out, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int len = wrap_vasprintf(out, format, args);
    va_end(args);
    return len;
}

static int wrap_vasprintf_chk(char **out, int flag, const char *format,
                              va_list args)
{
    (void)flag;
    return wrap_vasprintf(out, format, args);
}

static int wrap_asprintf_chk(char **out, int flag, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int wrap_asprintf_chk(char **out, int flag, const char *format, ...)
{
    va_list args;

    (void)flag;
    va_start(args, format);
    int len = wrap_vasprintf(out, format, args);
    va_end(args);
    return len;
}

/* The C library would make the caller's buffer longer by its own means. */
static ssize_t wrap_getdelim(char **line, size_t *room, int end, FILE *stream)
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
            char *grown = wrap_realloc(*line, more);
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

static ssize_t wrap_getline(char **line, size_t *room, FILE *stream)
{
    return wrap_getdelim(line, room, '\n', stream);
}

/* ---- mappings ----------------------------------------------------------- */

static void *wrap_mmap(void *at, size_t bytes, int protection, int flags,
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
    void *data = wrap_given(heap, heap_map(heap, bytes), bytes);
    return data != NULL ? data : MAP_FAILED;
}

static int wrap_munmap(void *at, size_t bytes)
{
    if (!context_covers(at)) {
        return munmap(at, bytes);
    }
    size_t whole = (bytes + WRAP_PAGE - 1) & ~(WRAP_PAGE - 1);
    if (((uintptr_t)at & (WRAP_PAGE - 1)) != 0 || bytes == 0) {
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

static void *wrap_mremap(void *at, size_t was, size_t bytes, int flags, ...)
{
    va_list args;

    va_start(args, flags);
    void *to = (flags & MREMAP_FIXED) != 0 ? va_arg(args, void *) : NULL;
    va_end(args);
    if (!context_covers(at)) {
        return mremap(at, was, bytes, flags, to);
    }
    if (bytes <= was) {
        size_t page = WRAP_PAGE - 1, keep = (bytes + page) & ~page;
        if (keep < was) {
            wrap_munmap((char *)at + keep, was - keep);
        }
        return at;
    }
    void *data = MAP_FAILED;
    if (flags == MREMAP_MAYMOVE) {
        data = wrap_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (data == MAP_FAILED) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    memcpy(data, at, was);
    wrap_munmap(at, was);
    return data;
}

/* ---- what keeps addresses ----------------------------------------------- */

/* A stream may be flushed while its rank's context is not there. */
static int wrap_setvbuf(FILE *stream, char *buffer, int mode, size_t bytes)
{
    return setvbuf(stream, context_covers(buffer) ? NULL : buffer, mode, bytes);
}

static void wrap_setbuf(FILE *stream, char *buffer)
{
    wrap_setvbuf(stream, buffer, buffer != NULL ? _IOFBF : _IONBF, BUFSIZ);
}

/* A thread may touch its rank's memory at any time. */
static int wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                               void *(*body)(void *arg), void *arg)
{
    const struct vrank *self = vrank_self();

    if (self != NULL && self->context != NULL) {
        context_keep_resident(self->context);
    }
    return pthread_create(thread, attr, body, arg);
}

const struct libc_wrap wrap_heap[] = {
    WRAP(malloc),
    WRAP(calloc),
    WRAP(free),
    WRAP(realloc),
    WRAP(reallocarray),
    WRAP(malloc_usable_size),
    WRAP(aligned_alloc),
    {"memalign", (void (*)(void))wrap_aligned_alloc},
    WRAP(posix_memalign),
    WRAP(valloc),
    WRAP(pvalloc),
    WRAP(strdup),
    {"__strdup", (void (*)(void))wrap_strdup},
    WRAP(strndup),
    WRAP(vasprintf),
    WRAP(asprintf),
    {"__vasprintf_chk", (void (*)(void))wrap_vasprintf_chk},
    {"__asprintf_chk", (void (*)(void))wrap_asprintf_chk},
    WRAP(getdelim),
    {"__getdelim", (void (*)(void))wrap_getdelim},
    WRAP(getline),
    WRAP(mmap),
    {"mmap64", (void (*)(void))wrap_mmap},
    WRAP(munmap),
    WRAP(mremap),
    WRAP(setvbuf),
    WRAP(setbuf),
    WRAP(pthread_create),
    {NULL, NULL},
};
