/*
 * The environment of a rank: an array of its own, which setenv and the like
 * change, and which `environ` in its private images means. Strings of putenv
 * are the program's; those that setenv makes are never freed while the program
 * may hold them, as in the C library.
 */
#include "libc_wrap.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static char ***wrap_environment(void)
{
    struct vrank_libc *own = libc_now();
    return own != NULL ? &own->environment : &environ;
}

/* The entry of the variable whose name has `len` bytes, or NULL. */
static char **wrap_entry(char **list, const char *name, size_t len)
{
    for (; list != NULL && *list != NULL; list++) {
        if (strncmp(*list, name, len) == 0 && (*list)[len] == '=') {
            return list;
        }
    }
    return NULL;
}

static bool wrap_is_name(const char *name)
{
    return name != NULL && *name != '\0' && strchr(name, '=') == NULL;
}

static char *wrap_getenv(const char *name)
{
    size_t len = strlen(name);
    char **entry = len > 0 ? wrap_entry(*wrap_environment(), name, len) : NULL;
    return entry != NULL ? *entry + len + 1 : NULL;
}

/* `text` is "NAME=VALUE", and stays. */
static int wrap_put(char *text, size_t len)
{
    char ***list = wrap_environment();
    char **entry = wrap_entry(*list, text, len);
    if (entry != NULL) {
        *entry = text;
        return 0;
    }
    size_t count = 0;
    while (*list != NULL && (*list)[count] != NULL) {
        count++;
    }
    /* The program may still use the old array: it is not freed. */
    char **longer = malloc((count + 2) * sizeof *longer);
    if (longer == NULL) {
        errno = ENOMEM;
        return -1;
    }
    if (count > 0) {
        memcpy(longer, *list, count * sizeof *longer);
    }
    longer[count] = text;
    longer[count + 1] = NULL;
    *list = longer;
    return 0;
}

static int wrap_setenv(const char *name, const char *value, int replace)
{
    if (!wrap_is_name(name)) {
        errno = EINVAL;
        return -1;
    }
    size_t len = strlen(name);
    if (!replace && wrap_entry(*wrap_environment(), name, len) != NULL) {
        return 0;
    }
    size_t bytes = len + strlen(value) + 2;
    char *text = malloc(bytes);
    if (text == NULL) {
        errno = ENOMEM;
        return -1;
    }
    snprintf(text, bytes, "%s=%s", name, value);
    return wrap_put(text, len);
}

static int wrap_unsetenv(const char *name)
{
    if (!wrap_is_name(name)) {
        errno = EINVAL;
        return -1;
    }
    char **entry;
    size_t len = strlen(name);
    while ((entry = wrap_entry(*wrap_environment(), name, len)) != NULL) {
        do {
            entry[0] = entry[1];
        } while (*entry++ != NULL);
    }
    return 0;
}

static int wrap_putenv(char *text)
{
    size_t len = strcspn(text, "=");
    return text[len] == '=' ? wrap_put(text, len) : wrap_unsetenv(text);
}

static int wrap_clearenv(void)
{
    char ***list = wrap_environment();
    if (*list != NULL) {
        **list = NULL;
    }
    return 0;
}

const struct libc_wrap wrap_env[] = {
    WRAP(getenv),   WRAP(setenv),
    WRAP(unsetenv), {"secure_getenv", (void (*)(void))wrap_getenv},
    WRAP(putenv),   WRAP(clearenv),
    {NULL, NULL},
};
