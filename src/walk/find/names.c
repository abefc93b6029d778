/* Names of users, groups and file systems, looked up once. */
#include "internal.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* ---- users and groups --------------------------------------------------- */

static struct find_name *names_slot(struct find_names *names, uint32_t id)
{
    size_t at = poise_hash_u64(id) & (names->cap - 1);
    while (names->slots[at].used && names->slots[at].id != id) {
        at = (at + 1) & (names->cap - 1);
    }
    return &names->slots[at];
}

static int names_grow(struct find_names *names)
{
    struct find_names bigger = {.cap = names->cap ? names->cap * 2 : 16,
                                .count = names->count};
    bigger.slots = poise_alloc(bigger.cap, sizeof *bigger.slots);
    if (!bigger.slots) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < names->cap; i++) {
        if (names->slots[i].used) {
            *names_slot(&bigger, names->slots[i].id) = names->slots[i];
        }
    }
    free(names->slots);
    *names = bigger;
    return 0;
}

void find_names_free(struct find_names *names)
{
    for (size_t i = 0; i < names->cap; i++) {
        free(names->slots[i].name);
    }
    free(names->slots);
}

/* Both functions ask the system with space of `size` bytes: ERANGE if that is
 * not enough, else 0 and a copy of the name or NULL. */
static int ask_user(uint32_t id, char *space, size_t size, char **out)
{
    struct passwd entry, *found = NULL;
    int code = getpwuid_r(id, &entry, space, size, &found);
    *out = code == 0 && found ? strdup(entry.pw_name) : NULL;
    return code == ERANGE ? ERANGE : 0;
}

static int ask_group(uint32_t id, char *space, size_t size, char **out)
{
    struct group entry, *found = NULL;
    int code = getgrgid_r(id, &entry, space, size, &found);
    *out = code == 0 && found ? strdup(entry.gr_name) : NULL;
    return code == ERANGE ? ERANGE : 0;
}

static const char *look_up(struct find_names *names, uint32_t id,
                           int (*ask)(uint32_t, char *, size_t, char **))
{
    if (names->cap > 0) {
        const struct find_name *known = names_slot(names, id);
        if (known->used) {
            return known->name;
        }
    }
    if (2 * names->count >= names->cap && names_grow(names) < 0) {
        return NULL;
    }
    char *name = NULL, *space = NULL;
    int code = ERANGE;
    for (size_t size = 4096; code == ERANGE && size <= 1 << 24; size *= 4) {
        char *more = poise_realloc(space, size, 1);
        if (!more) {
            break;
        }
        space = more;
        code = ask(id, space, size, &name);
    }
    free(space);
    *names_slot(names, id) =
        (struct find_name){.id = id, .used = true, .name = name};
    names->count++;
    return name;
}

const char *find_user_name(struct find_state *state, uint32_t id)
{
    return look_up(&state->users, id, ask_user);
}

const char *find_group_name(struct find_state *state, uint32_t id)
{
    return look_up(&state->groups, id, ask_group);
}

/* ---- file systems ------------------------------------------------------- */

/* A line of mountinfo: "36 35 98:0 /mnt1 /mnt2 rw shared:1 - ext3 /dev/sda". */
static int add_mount(struct find_run *run, const char *line)
{
    unsigned major, minor;
    const char *rest = strstr(line, " - ");
    char type[64];
    if (!rest || sscanf(line, "%*u %*u %u:%u", &major, &minor) != 2 ||
        sscanf(rest + 3, "%63s", type) != 1) {
        return 0;
    }
    struct find_mount *more =
        poise_realloc(run->mounts, run->mount_count + 1, sizeof *more);
    if (!more) {
        return -ENOMEM;
    }
    run->mounts = more;
    struct find_mount mount = {
        .major = major, .minor = minor, .type = strdup(type)};
    if (!mount.type) {
        return -ENOMEM;
    }
    run->mounts[run->mount_count++] = mount;
    return 0;
}

static void read_mounts(struct find_run *run)
{
    run->mounts_read = true;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (!file) {
        return;
    }
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, file) >= 0 && add_mount(run, line) == 0) {
    }
    free(line);
    fclose(file);
}

const char *find_fs_type(struct find_state *state, const struct statx *st)
{
    struct find_run *run = state->run;
    const char *type = "unknown";
    pthread_mutex_lock(&run->lock);
    if (!run->mounts_read) {
        read_mounts(run);
    }
    for (size_t i = 0; i < run->mount_count; i++) {
        if (run->mounts[i].major == st->stx_dev_major &&
            run->mounts[i].minor == st->stx_dev_minor) {
            type = run->mounts[i].type;
            break;
        }
    }
    pthread_mutex_unlock(&run->lock);
    return type;
}

void find_mounts_free(struct find_run *run)
{
    for (size_t i = 0; i < run->mount_count; i++) {
        free(run->mounts[i].type);
    }
    free(run->mounts);
}
