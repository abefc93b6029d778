/*
 * The environment of a rank: an array of its own, which setenv and its kin
 * change, and which `environ` in its copies means. Strings of putenv are the
 * program's; those that setenv makes are never freed while the program may
 * hold them, as in the C library.
 */
#include "libc_wrap.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static char ***shim_environment(void)
{
    struct vrank_libc *own = libc_now();
    return own != NULL ? &own->environment : &environ;
}

/* The entry of the variable whose name has `len` bytes, or NULL. */
static char **shim_entry(char **list, const char *name, size_t len)
{
    for (; list != NULL && *list != NULL; list++) {
        if (strncmp(*list, name, len) == 0 && (*list)[len] == '=') {
            return list;
        }
    }
    return NULL;
}

static bool shim_is_name(const char *name)
{
    return name != NULL && *name != '\0' && strchr(name, '=') == NULL;
}

static char *shim_getenv(const char *name)
{
    size_t len = strlen(name);
    char **entry = len > 0 ? shim_entry(*shim_environment(), name, len) : NULL;
    return entry != NULL ? *entry + len + 1 : NULL;
}

/* `text` is "NAME=VALUE", and stays. */
static int shim_put(char *text, size_t len)
{
    char ***list = shim_environment();
    char **entry = shim_entry(*list, text, len);
    if (entry != NULL) {
        *entry = text;
        return 0;
    }
    size_t count = 0;
    while (*list != NULL && (*list)[count] != NULL) {
        count++;
    }
    /* The old array may be somebody's argument still: it is not freed. */
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

static int shim_setenv(const char *name, const char *value, int replace)
{
    if (!shim_is_name(name)) {
        errno = EINVAL;
        return -1;
    }
    size_t len = strlen(name);
    if (!replace && shim_entry(*shim_environment(), name, len) != NULL) {
        return 0;
    }
    size_t bytes = len + strlen(value) + 2;
    char *text = malloc(bytes);
    if (text == NULL) {
        errno = ENOMEM;
        return -1;
    }
    snprintf(text, bytes, "%s=%s", name, value);
    return shim_put(text, len);
}

static int shim_unsetenv(const char *name)
{
    if (!shim_is_name(name)) {
        errno = EINVAL;
        return -1;
    }
    char **entry;
    size_t len = strlen(name);
    while ((entry = shim_entry(*shim_environment(), name, len)) != NULL) {
        do {
            entry[0] = entry[1];
        } while (*entry++ != NULL);
    }
    return 0;
}

static int shim_putenv(char *text)
{
    size_t len = strcspn(text, "=");
    return text[len] == '=' ? shim_put(text, len) : shim_unsetenv(text);
}

static int shim_clearenv(void)
{
    char ***list = shim_environment();
    if (*list != NULL) {
        **list = NULL;
    }
    return 0;
}

const struct shim shim_env[] = {
    SHIM(getenv),   SHIM(setenv),
    SHIM(unsetenv), {"secure_getenv", (void (*)(void))shim_getenv},
    SHIM(putenv),   SHIM(clearenv),
    {NULL, NULL},
};
