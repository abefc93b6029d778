/*
 * The standard output of a rank: its own stream, from which whole lines go to
 * the process's descriptor (libc.c). A program's `stdout` is replaced in its
 * copies; here are the functions that mean it without naming it.
 */
#include "libc_wrap.h"

#include <stdarg.h>
#include <unistd.h>

static FILE *shim_out(void)
{
    struct vrank_libc *own = libc_now();
    return own != NULL && own->out != NULL ? own->out : stdout;
}

static FILE *shim_in(void)
{
    struct vrank_libc *own = libc_now();
    return own != NULL && own->in != NULL ? own->in : stdin;
}

static int shim_vprintf(const char *format, va_list args)
{
    return vfprintf(shim_out(), format, args);
}

static int shim_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vfprintf(shim_out(), format, args);
    va_end(args);
    return len;
}

/* What these two are called when programs are compiled with
 * _FORTIFY_SOURCE. */
static int shim___vprintf_chk(int flag, const char *format, va_list args)
{
    (void)flag;
    return vfprintf(shim_out(), format, args);
}

static int shim___printf_chk(int flag, const char *format, ...)
{
    va_list args;
    (void)flag;
    va_start(args, format);
    int len = vfprintf(shim_out(), format, args);
    va_end(args);
    return len;
}

static int shim_puts(const char *text)
{
    FILE *out = shim_out();
    return fputs(text, out) == EOF ? EOF : putc('\n', out);
}

static int shim_putchar(int c)
{
    return putc(c, shim_out());
}

static int shim_putchar_unlocked(int c)
{
    return putc(c, shim_out());
}

static int shim_getchar(void)
{
    return getc(shim_in());
}

static int shim_getchar_unlocked(void)
{
    return getc(shim_in());
}

static int shim___isoc99_vscanf(const char *format, va_list args)
{
    return vfscanf(shim_in(), format, args);
}

static int shim___isoc99_scanf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int count = vfscanf(shim_in(), format, args);
    va_end(args);
    return count;
}

const struct shim shim_stdio[] = {
    SHIM(printf),
    SHIM(vprintf),
    SHIM(__printf_chk),
    SHIM(__vprintf_chk),
    SHIM(puts),
    SHIM(putchar),
    SHIM(putchar_unlocked),
    SHIM(getchar),
    SHIM(getchar_unlocked),
    SHIM(__isoc99_scanf),
    SHIM(__isoc99_vscanf),
    /* The same but for an old extension of theirs. */
    {"scanf", (void (*)(void))shim___isoc99_scanf},
    {"vscanf", (void (*)(void))shim___isoc99_vscanf},
    {NULL, NULL},
};
