/*
 * The standard output of a rank: its own stream, from which whole lines go to
 * the process's descriptor (libc.c). A program's `stdout` is replaced in its
 * private images; here are the functions that mean it without naming it.
 */
#include "libc_wrap.h"

#include <stdarg.h>
#include <unistd.h>

static FILE *wrap_out(void)
{
    struct vrank_libc *own = libc_now();
    return own != NULL && own->out != NULL ? own->out : stdout;
}

static FILE *wrap_in(void)
{
    struct vrank_libc *own = libc_now();
    return own != NULL && own->in != NULL ? own->in : stdin;
}

static int wrap_vprintf(const char *format, va_list args)
{
    return vfprintf(wrap_out(), format, args);
}

static int wrap_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vfprintf(wrap_out(), format, args);
    va_end(args);
    return len;
}

/* What these two are called when programs are compiled with
 * _FORTIFY_SOURCE. */
static int wrap___vprintf_chk(int flag, const char *format, va_list args)
{
    (void)flag;
    return vfprintf(wrap_out(), format, args);
}

static int wrap___printf_chk(int flag, const char *format, ...)
{
    va_list args;
    (void)flag;
    va_start(args, format);
    int len = vfprintf(wrap_out(), format, args);
    va_end(args);
    return len;
}

static int wrap_puts(const char *text)
{
    FILE *out = wrap_out();
    return fputs(text, out) == EOF ? EOF : putc('\n', out);
}

static int wrap_putchar(int c)
{
    return putc(c, wrap_out());
}

static int wrap_putchar_unlocked(int c)
{
    return putc(c, wrap_out());
}

static int wrap_getchar(void)
{
    return getc(wrap_in());
}

static int wrap_getchar_unlocked(void)
{
    return getc(wrap_in());
}

static int wrap___isoc99_vscanf(const char *format, va_list args)
{
    return vfscanf(wrap_in(), format, args);
}

static int wrap___isoc99_scanf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int count = vfscanf(wrap_in(), format, args);
    va_end(args);
    return count;
}

const struct libc_wrap wrap_stdio[] = {
    WRAP(printf),
    WRAP(vprintf),
    WRAP(__printf_chk),
    WRAP(__vprintf_chk),
    WRAP(puts),
    WRAP(putchar),
    WRAP(putchar_unlocked),
    WRAP(getchar),
    WRAP(getchar_unlocked),
    WRAP(__isoc99_scanf),
    WRAP(__isoc99_vscanf),
    /* The same but for an old extension of theirs. */
    {"scanf", (void (*)(void))wrap___isoc99_scanf},
    {"vscanf", (void (*)(void))wrap___isoc99_vscanf},
    {NULL, NULL},
};
