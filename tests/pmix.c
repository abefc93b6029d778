/*
 * For the tests: ranks of Open MPI that end wait for mpirun's answer.
 *
 * PMIx has a rank wait for 2 s in MPI_Finalize until mpirun has taken note of
 * it. On a machine that stalls for longer the rank goes on without: mpirun
 * says that it ended improperly, or the rank crashes when the answer comes
 * after all. Preloaded into a rank, this has it wait for an hour.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/time.h>

struct event;
int event_add(struct event *event, const struct timeval *timeout);

typedef int add_function(struct event *event, const struct timeval *timeout);

/* libevent's: its library may be one of those only that `caller` was loaded
 * with. */
static add_function *find(const void *caller)
{
    void *found = dlsym(RTLD_NEXT, "event_add");
    Dl_info info;
    if (!found && dladdr(caller, &info)) {
        void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        found = library ? dlsym(library, "event_add") : NULL;
    }
    if (!found) {
        abort();
    }
    add_function *add;
    *(void **)&add = found;
    return add;
}

int event_add(struct event *event, const struct timeval *timeout)
{
    static add_function *kept;
    const struct timeval hour = {.tv_sec = 3600};
    add_function *add = __atomic_load_n(&kept, __ATOMIC_RELAXED);
    if (!add) {
        add = find(__builtin_return_address(0));
        __atomic_store_n(&kept, add, __ATOMIC_RELAXED);
    }
    bool is_end = timeout && timeout->tv_sec == 2 && timeout->tv_usec == 0;
    return add(event, is_end ? &hour : timeout);
}
