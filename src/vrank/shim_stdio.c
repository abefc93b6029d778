/*
 * The standard output of a rank: its own stream, from which whole lines go to
 * the process's descriptor (libc.c). A program's `stdout` is replaced in its
 * copies; here are the functions that mean it without naming it.
 */
#include "shim.h"

#include <stdarg.h>
#include <unistd.h>

static FILE *shim_out(void)
{
    struct vrank_libc *own = poise_vrank_libc();
    return own != NULL && own->out != NULL ? own->out : stdout;
}

static FILE *shim_in(void)
{
    struct vrank_libc *own = poise_vrank_libc();
    return own != NULL && own->in != NULL ? own->in : stdin;
}

SHIM_API int vprintf(const char *format, va_list args)
{
    return vfprintf(shim_out(), format, args);
}

SHIM_API int printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vfprintf(shim_out(), format, args);
    va_end(args);
    return len;
}

/* What these two are called when programs are compiled with
 * _FORTIFY_SOURCE. */
SHIM_API int __vprintf_chk(int flag, const char *format, va_list args);
SHIM_API int __printf_chk(int flag, const char *format, ...);

SHIM_API int __vprintf_chk(int flag, const char *format, va_list args)
{
    (void)flag;
    return vfprintf(shim_out(), format, args);
}

SHIM_API int __printf_chk(int flag, const char *format, ...)
{
    va_list args;
    (void)flag;
    va_start(args, format);
    int len = vfprintf(shim_out(), format, args);
    va_end(args);
    return len;
}

SHIM_API int puts(const char *text)
{
    FILE *out = shim_out();
    return fputs(text, out) == EOF ? EOF : putc('\n', out);
}

#undef putchar
SHIM_API int putchar(int c)
{
    return putc(c, shim_out());
}

#undef putchar_unlocked
SHIM_API int putchar_unlocked(int c)
{
    return putc(c, shim_out());
}

#undef getchar
SHIM_API int getchar(void)
{
    return getc(shim_in());
}

#undef getchar_unlocked
SHIM_API int getchar_unlocked(void)
{
    return getc(shim_in());
}

/* By either name, scanf reads the standard input. */
SHIM_API int __isoc99_vscanf(const char *format, va_list args);
SHIM_API int __isoc99_scanf(const char *format, ...);

SHIM_API int __isoc99_vscanf(const char *format, va_list args)
{
    return vfscanf(shim_in(), format, args);
}

SHIM_API int __isoc99_scanf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int count = vfscanf(shim_in(), format, args);
    va_end(args);
    return count;
}
