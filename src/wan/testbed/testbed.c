/*
 * A testbed's folder: NAME/ in the folder of all testbeds of this user.
 *
 *   lock    locked by the gateway for as long as it lives
 *   state   a log (docs/formats.md): the gateway, the sites, the hosts
 *   counts  struct poise_wan_counts [sites * sites], mapped by the gateway
 *   hosts   what hosts see as /etc/hosts
 *   resolv  and as /etc/resolv.conf, if they have a way out
 *   sites   which site each host is of, for POISE_SITES
 *   control a socket: who asks the gateway to change links
 *   log     why the gateway ended, if it did by itself
 *   agent-* what 'poise wan run' gives launchers in place of ssh
 *
 * The gateway is killed, not asked: hosts die with it, and there is nothing
 * that it would have to save.
 */
#include "wan/gateway/gateway.h"
#include "wan/host/host.h"
#include "wan/topology/topology.h"

#include <poise/core.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATE_MAGIC "POISEWAN"
#define STATE_VERSION 1
enum { STATE_GATEWAY = 1, STATE_SITE, STATE_HOST };

static const char *const files[] = {"state",  "counts",        "hosts",
                                    "resolv", POISE_WAN_SITES, WAN_CONTROL,
                                    "log",    "lock"};
enum { FILES = sizeof files / sizeof *files };

/* How long a killed gateway may take to be gone: what is killed ends, but on a
 * busy machine the kernel needs seconds to take apart the networks of many. */
#define DOWN_TIMEOUT_NS UINT64_C(60000000000)

/* ---- the folder --------------------------------------------------------- */

static int folder_of(const char *name, struct poise_buf *out)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    size_t len = strlen(name);
    if (len == 0 || len > 64 || name[0] == '.' || strchr(name, '/')) {
        return poise_error_set(EINVAL, "use testbed", name,
                               "no name for a testbed");
    }
    if (geteuid() == 0) {
        poise_buf_puts(out, "/run/poise-wan");
    } else if (run && run[0] == '/') {
        poise_buf_printf(out, "%s/poise-wan", run);
    } else {
        poise_buf_printf(out, "/tmp/poise-wan-%u", (unsigned)geteuid());
    }
    /* It must be ours: others could put in what we then trust. */
    struct stat st;
    const char *base = poise_buf_str(out);
    if (mkdir(base, 0700) < 0 && errno != EEXIST) {
        return poise_error_set(errno, "make folder", base, NULL);
    }
    if (lstat(base, &st) < 0 || !S_ISDIR(st.st_mode) ||
        st.st_uid != geteuid() || (st.st_mode & 022)) {
        return poise_error_set(EPERM, "use folder", base,
                               "it is not this user's alone");
    }
    poise_buf_printf(out, "/%s", name);
    return out->error;
}

/* The path of one file of a folder; owned by `out`. */
static const char *file_of(const char *folder, const char *file,
                           struct poise_buf *out)
{
    poise_buf_reset(out);
    poise_buf_printf(out, "%s/%s", folder, file);
    return poise_buf_str(out);
}

/* What runs that were killed have left. */
static void agents_clear(const char *folder)
{
    struct poise_buf path = {0};
    struct dirent *entry;
    DIR *dir = opendir(folder);
    while (dir && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, POISE_WAN_AGENT, strlen(POISE_WAN_AGENT)) ==
            0) {
            unlink(file_of(folder, entry->d_name, &path));
        }
    }
    if (dir) {
        closedir(dir);
    }
    poise_buf_free(&path);
}

static void folder_clear(const char *folder)
{
    struct poise_buf path = {0};
    agents_clear(folder);
    for (int i = 0; i < FILES; i++) {
        unlink(file_of(folder, files[i], &path));
    }
    rmdir(folder);
    poise_buf_free(&path);
}

/* Lock the folder and return the lock's descriptor: no testbed is up there.
 * -EWOULDBLOCK, without an error set: one is up. */
static int folder_lock(const char *folder, bool make)
{
    struct poise_buf path = {0};
    const char *lock = file_of(folder, "lock", &path);
    int fd = open(lock, O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
    int code = fd < 0 ? -errno : 0;
    if (code == 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        code = -errno;
        close(fd);
    }
    if (code < 0 && code != -EWOULDBLOCK) {
        poise_error_set(-code, "open", lock, NULL);
    }
    poise_buf_free(&path);
    return code < 0 ? code : fd;
}

/* ---- state -------------------------------------------------------------- */

static int state_write(const char *folder,
                       const struct poise_wan_topology *topology,
                       const struct wan_host *hosts)
{
    struct poise_buf path = {0}, bytes = {0};
    struct poise_log *log = NULL;
    int code = poise_log_create(file_of(folder, "state", &path), STATE_MAGIC,
                                STATE_VERSION, &log);
    poise_buf_u64(&bytes, (uint64_t)getpid());
    if (code == 0) {
        code = poise_log_append(log, STATE_GATEWAY, bytes.data, bytes.len);
    }
    for (unsigned i = 0; code == 0 && i < topology->count; i++) {
        const struct poise_wan_site *site = &topology->sites[i];
        poise_buf_reset(&bytes);
        poise_buf_varint(&bytes, site->hosts);
        poise_buf_blob(&bytes, site->name, strlen(site->name));
        code = bytes.error;
        if (code == 0) {
            code = poise_log_append(log, STATE_SITE, bytes.data, bytes.len);
        }
    }
    for (unsigned i = 0; code == 0 && i < topology->hosts; i++) {
        poise_buf_reset(&bytes);
        poise_buf_u64(&bytes, (uint64_t)hosts[i].pid);
        code = poise_log_append(log, STATE_HOST, bytes.data, bytes.len);
    }
    if (code == 0) {
        code = poise_log_commit(log);
    } else {
        poise_log_abort(log);
    }
    poise_buf_free(&bytes);
    poise_buf_free(&path);
    return code;
}

static int state_site(struct poise_reader *reader,
                      struct poise_wan_topology *topology)
{
    size_t len = 0;
    uint64_t hosts = poise_reader_varint(reader);
    const char *name = poise_reader_blob(reader, &len);
    if (reader->error || hosts > POISE_WAN_HOSTS_MOST ||
        topology->count == POISE_WAN_SITES_MOST) {
        return -EBADMSG;
    }
    void *sites = poise_realloc(topology->sites, topology->count + 1,
                                sizeof *topology->sites);
    if (!sites) {
        return -ENOMEM;
    }
    topology->sites = sites;
    struct poise_wan_site *site = &topology->sites[topology->count];
    *site = (struct poise_wan_site){.name = strndup(name, len),
                                    .hosts = (unsigned)hosts};
    if (!site->name) {
        return -ENOMEM;
    }
    topology->count++;
    topology->hosts += site->hosts;
    return 0;
}

static int state_host(struct poise_reader *reader,
                      struct poise_wan_testbed *testbed, unsigned *known)
{
    struct poise_wan_topology *topology = &testbed->topology;
    struct poise_buf name = {0};
    if (!testbed->hosts) {
        testbed->hosts =
            poise_alloc(topology->hosts + 1, sizeof *testbed->hosts);
    }
    if (!testbed->hosts || *known == topology->hosts) {
        return testbed->hosts ? -EBADMSG : -ENOMEM;
    }
    struct poise_wan_host_state *host = &testbed->hosts[*known];
    host->pid = (int64_t)poise_reader_u64(reader);
    host->address = poise_wan_host_address(topology, *known);
    poise_wan_host_name(topology, *known, &name);
    host->name = strdup(poise_buf_str(&name));
    poise_buf_free(&name);
    (*known)++;
    return !host->name ? -ENOMEM : reader->error ? -EBADMSG : 0;
}

static int state_read(const char *path, struct poise_wan_testbed *testbed)
{
    struct poise_log_reader *log = NULL;
    uint32_t type;
    const void *data;
    size_t len;
    unsigned known = 0;
    int code = poise_log_open(path, STATE_MAGIC, STATE_VERSION, &log);
    while (code == 0 && (code = poise_log_next(log, &type, &data, &len)) > 0) {
        struct poise_reader reader = poise_reader_of(data, len);
        if (type == STATE_GATEWAY) {
            testbed->gateway = (int64_t)poise_reader_u64(&reader);
            code = reader.error;
        } else if (type == STATE_SITE) {
            code = state_site(&reader, &testbed->topology);
        } else if (type == STATE_HOST) {
            code = state_host(&reader, testbed, &known);
        } else {
            code = -EBADMSG;
        }
    }
    if (code == 0 && known != testbed->topology.hosts) {
        code = -EBADMSG;
    }
    if (code == -EBADMSG) {
        poise_error_set(EBADMSG, "read", path, "it makes no sense");
    }
    poise_log_close(log);
    return code;
}

static int counts_map(const char *path, struct poise_wan_testbed *testbed)
{
    size_t sites = testbed->topology.count;
    size_t bytes = sites * sites * sizeof *testbed->counts;
    struct stat st;
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    int code = 0;
    void *map = MAP_FAILED;
    if (fstat(fd, &st) < 0 || (size_t)st.st_size != bytes) {
        code = poise_error_set(EBADMSG, "read", path,
                               "another size than "
                               "expected");
    } else {
        map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
            code = poise_error_set(errno, "map", path, NULL);
        }
    }
    poise_file_close(fd, path);
    if (code == 0) {
        testbed->counts = map;
        testbed->map_bytes = bytes;
    }
    return code;
}

int poise_wan_open(const char *name, struct poise_wan_testbed **out)
{
    struct poise_buf folder = {0}, path = {0};
    struct poise_wan_testbed *testbed = NULL;
    int code = folder_of(name, &folder);
    if (code == 0 && access(poise_buf_str(&folder), F_OK) < 0) {
        code = poise_error_set(ENOENT, "find testbed", name,
                               "none of that name is up");
    }
    if (code == 0 && !(testbed = poise_alloc(1, sizeof *testbed))) {
        code = -ENOMEM;
    }
    if (code == 0) {
        int lock = folder_lock(poise_buf_str(&folder), false);
        testbed->alive = lock == -EWOULDBLOCK;
        if (lock >= 0) {
            close(lock);
        }
        code = state_read(file_of(folder.data, "state", &path), testbed);
        testbed->topology.outside =
            access(file_of(folder.data, "resolv", &path), F_OK) == 0;
        testbed->stopped = testbed->alive && wan_is_stopped(testbed->gateway);
    }
    if (code == 0) {
        code = counts_map(file_of(folder.data, "counts", &path), testbed);
    }
    if (code == 0 && !(testbed->folder = strdup(folder.data))) {
        code = -ENOMEM;
    }
    poise_buf_free(&folder);
    poise_buf_free(&path);
    if (code < 0) {
        poise_wan_close(testbed);
        return code;
    }
    *out = testbed;
    return 0;
}

void poise_wan_close(struct poise_wan_testbed *testbed)
{
    if (!testbed) {
        return;
    }
    for (unsigned i = 0; testbed->hosts && i < testbed->topology.hosts; i++) {
        free(testbed->hosts[i].name);
    }
    if (testbed->counts) {
        munmap((void *)(uintptr_t)testbed->counts, testbed->map_bytes);
    }
    free(testbed->hosts);
    free(testbed->folder);
    poise_wan_topology_free(&testbed->topology);
    free(testbed);
}

int poise_wan_find_host(const struct poise_wan_testbed *testbed,
                        const char *name)
{
    for (unsigned i = 0; i < testbed->topology.hosts; i++) {
        const struct poise_wan_host_state *host = &testbed->hosts[i];
        char address[16], number[16];
        snprintf(address, sizeof address, "%u.%u.%u.%u", host->address >> 24,
                 host->address >> 16 & 255, host->address >> 8 & 255,
                 host->address & 255);
        snprintf(number, sizeof number, "%u", i);
        if (strcmp(name, host->name) == 0 || strcmp(name, address) == 0 ||
            strcmp(name, number) == 0) {
            return (int)i;
        }
    }
    return poise_error_set(ENOENT, "find host", name,
                           "the testbed has none of that name");
}

int poise_wan_host_sent(const struct poise_wan_testbed *testbed, unsigned host,
                        uint64_t *bytes)
{
    char path[64], text[4096] = "";
    snprintf(path, sizeof path, "/proc/%lld/net/dev",
             (long long)testbed->hosts[host].pid);
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    ssize_t got = poise_file_read(fd, text, sizeof text - 1, path);
    poise_file_close(fd, path);
    if (got < 0) {
        return (int)got;
    }
    /* "e0:", eight numbers of what it received, then the bytes sent. */
    const char *line = strstr(text, WAN_TUNNEL ":");
    unsigned long long sent;
    if (!line || sscanf(line + strlen(WAN_TUNNEL ":"),
                        "%*u %*u %*u %*u %*u %*u %*u %*u %llu", &sent) != 1) {
        return poise_error_set(EBADMSG, "read", path, "it has no line of %s",
                               WAN_TUNNEL);
    }
    *bytes = sent;
    return 0;
}

/* ---- going up ----------------------------------------------------------- */

static int hosts_write(const char *path,
                       const struct poise_wan_topology *topology)
{
    struct poise_buf text = {0};
    poise_buf_puts(&text, "127.0.0.1 localhost\n");
    for (unsigned i = 0; i < topology->hosts; i++) {
        uint32_t address = poise_wan_host_address(topology, i);
        poise_buf_printf(&text, "%u.%u.%u.%u ", address >> 24,
                         address >> 16 & 255, address >> 8 & 255,
                         address & 255);
        poise_wan_host_name(topology, i, &text);
        poise_buf_printf(&text, "\nfd77::%x:%x ", address >> 8 & 255,
                         address & 255);
        poise_wan_host_name(topology, i, &text);
        poise_buf_puts(&text, ".ip6\n");
    }
    int code = poise_file_save(path, &text);
    poise_buf_free(&text);
    return code;
}

static int sites_write(const char *path,
                       const struct poise_wan_topology *topology)
{
    struct poise_buf text = {0};
    for (unsigned i = 0; i < topology->hosts; i++) {
        unsigned site = poise_wan_site_of(topology, i);
        poise_wan_host_name(topology, i, &text);
        poise_buf_printf(&text, " %s\n", topology->sites[site].name);
    }
    int code = poise_file_save(path, &text);
    poise_buf_free(&text);
    return code;
}

static int counts_make(const char *path,
                       const struct poise_wan_topology *topology,
                       struct poise_wan_counts **out)
{
    size_t bytes = (size_t)topology->count * topology->count * sizeof **out;
    int fd = poise_file_open(AT_FDCWD, path,
                             O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return fd;
    }
    /* Space that is really there: a write to the map must not fail later. */
    int code = posix_fallocate(fd, 0, (off_t)bytes);
    void *map =
        code ? MAP_FAILED
             : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        code = poise_error_set(code ? code : errno, "make", path, NULL);
    }
    poise_file_close(fd, path);
    *out = map;
    return code;
}

static int resolv_write(const char *path)
{
    struct poise_buf text = {0};
    poise_buf_puts(&text, WAN_OUTSIDE_RESOLV);
    int code = poise_file_save(path, &text);
    poise_buf_free(&text);
    return code;
}

static int hosts_make(const char *folder,
                      const struct poise_wan_topology *topology,
                      struct wan_host *hosts, int *ports)
{
    struct poise_buf names = {0}, resolv = {0}, name = {0};
    struct wan_wish wish = {.hosts_file = file_of(folder, "hosts", &names)};
    int code = hosts_write(wish.hosts_file, topology);
    if (code == 0 && topology->outside) {
        wish.resolv_file = file_of(folder, "resolv", &resolv);
        code = resolv_write(wish.resolv_file);
    }
    for (unsigned i = 0; code == 0 && i < topology->hosts; i++) {
        poise_buf_reset(&name);
        poise_wan_host_name(topology, i, &name);
        wish.name = poise_buf_str(&name);
        wish.address = poise_wan_host_address(topology, i);
        code = wan_host_create(&wish, &hosts[i]);
        ports[i] = hosts[i].tunnel;
        if (code == 0 && topology->outside) {
            code = wan_outside_open(wish.name, hosts[i].pid);
        }
    }
    poise_buf_free(&names);
    poise_buf_free(&resolv);
    poise_buf_free(&name);
    return code;
}

/* All that can fail; runs in the gateway. */
static int gateway_prepare(const char *folder,
                           const struct poise_wan_topology *topology,
                           struct wan_host *hosts, int *ports,
                           struct poise_wan_counts **counts)
{
    struct poise_buf path = {0};
    int code = counts_make(file_of(folder, "counts", &path), topology, counts);
    if (code == 0) {
        code = sites_write(file_of(folder, POISE_WAN_SITES, &path), topology);
    }
    if (code == 0) {
        code = hosts_make(folder, topology, hosts, ports);
    }
    if (code == 0) {
        code = state_write(folder, topology, hosts);
    }
    poise_buf_free(&path);
    return code;
}

/* Pass the last error, or nothing, through a pipe. */
static void report(int pipe_end, int code)
{
    struct poise_buf text = {0};
    const struct poise_error *last = poise_error_last();
    if (code < 0) {
        poise_buf_u64(&text, (uint64_t)-code);
        poise_buf_blob(&text, last->doing, strlen(last->doing));
        poise_buf_blob(&text, last->what, strlen(last->what));
        poise_buf_blob(&text, last->why, strlen(last->why));
    } else {
        poise_buf_u64(&text, 0);
    }
    ssize_t sent = write(pipe_end, text.data, text.len);
    (void)sent;
    poise_buf_free(&text);
}

/* What `report` sent; the error is set here, too. */
static int learn(int pipe_end, const char *name)
{
    char bytes[4096], words[3][1024];
    size_t got = 0;
    ssize_t now;
    while (got < sizeof bytes &&
           ((now = read(pipe_end, bytes + got, sizeof bytes - got)) > 0 ||
            (now < 0 && errno == EINTR))) {
        got += now > 0 ? (size_t)now : 0;
    }
    struct poise_reader reader = poise_reader_of(bytes, got);
    uint64_t code = poise_reader_u64(&reader);
    if (reader.error) {
        return poise_error_set(EIO, "make testbed", name,
                               "its gateway died at the start");
    }
    for (int i = 0; code && i < 3; i++) {
        size_t len = 0;
        const char *word = poise_reader_blob(&reader, &len);
        snprintf(words[i], sizeof words[i], "%.*s", (int)len, word ? word : "");
    }
    return code ? poise_error_set((int)code, words[0], words[1], "%s", words[2])
                : 0;
}

/* Before all that computes: what it emulates must not wait for a time slice.
 * Where that is refused, packets are late while the machine is busy, and
 * counted so. */
static void gateway_hurry(void)
{
    struct sched_param first = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first) < 0) {
        setpriority(PRIO_PROCESS, 0, -20);
        wan_short_slices();
    }
}

/* Begin the session of events that POISE_TRACE asks for. The gateway is the
 * only one in it; it is killed at the end, and its file is whole all the same.
 */
static int gateway_record(void)
{
    const char *path = getenv("POISE_TRACE");
    const char *events = getenv("POISE_TRACE_EVENTS");
    struct poise_trace_options options = {.program = "poise wan"};
    struct poise_trace *trace = NULL;
    int64_t records = 0;
    if (!path || !*path) {
        return 0;
    }
    if (events && *events &&
        poise_parse_int(events, 2, INT32_MAX, &records) < 0) {
        return poise_error_set(EINVAL, "read POISE_TRACE_EVENTS", events,
                               "not a number of records");
    }
    options.capacity = (unsigned)records;
    int code = poise_trace_create(path, &options, &trace);
    if (code == 0) {
        poise_trace_use(trace);
        poise_trace_name("gateway");
    }
    return code;
}

/* The gateway's own life; returns only if something goes wrong. */
static void gateway_live(const char *folder,
                         struct poise_wan_topology *topology, int word)
{
    struct poise_wan_counts *counts = NULL;
    struct wan_host *hosts = poise_alloc(topology->hosts, sizeof *hosts);
    int *ports = poise_alloc(topology->hosts, sizeof *ports);
    struct poise_buf text = {0}, path = {0};
    static const int never = 0;
    int listener = -1;
    int code = hosts && ports
                   ? gateway_prepare(folder, topology, hosts, ports, &counts)
                   : -ENOMEM;
    if (code == 0) {
        code = gateway_record();
    }
    if (code == 0) {
        listener = wan_control_listen(file_of(folder, WAN_CONTROL, &path));
        code = listener < 0 ? listener : 0;
    }
    report(word, code);
    close(word);
    if (code < 0) {
        return;
    }
    gateway_hurry();
    code = wan_gateway_run(topology, ports, listener, counts, &never);
    poise_error_format(poise_error_last(), &text);
    int fd = open(file_of(folder, "log", &path), O_WRONLY | O_CREAT | O_CLOEXEC,
                  0600);
    ssize_t sent = write(fd, text.data, text.len);
    (void)sent;
}

/* In a child: detach from the caller, and become the gateway. */
static void gateway_start(const char *folder,
                          struct poise_wan_topology *topology, int word,
                          int lock)
{
    setsid();
    pid_t pid = fork();
    if (pid != 0) {
        _exit(pid < 0);
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++) {
        dup2(null, i);
    }
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    /* The lock stays open: it is what says that we live. */
    (void)lock;
    gateway_live(folder, topology, word);
    _exit(1);
}

int poise_wan_up(const char *name, const char *topology_path)
{
    struct poise_wan_topology topology = {0};
    struct poise_buf folder = {0};
    int words[2], lock = -1;
    int code = poise_wan_topology_read(topology_path, &topology);
    if (code == 0) {
        code = folder_of(name, &folder);
    }
    if (code == 0 && mkdir(poise_buf_str(&folder), 0700) < 0 &&
        errno != EEXIST) {
        code = poise_error_set(errno, "make folder", folder.data, NULL);
    }
    if (code == 0) {
        lock = folder_lock(folder.data, true);
        code = lock == -EWOULDBLOCK
                   ? poise_error_set(EEXIST, "make testbed", name,
                                     "one of that name is up")
               : lock < 0 ? lock
                          : 0;
    }
    if (code == 0 && pipe2(words, O_CLOEXEC) < 0) {
        code = poise_error_set(errno, "make testbed", name, NULL);
    }
    if (code == 0) {
        pid_t child = fork();
        if (child == 0) {
            close(words[0]);
            gateway_start(folder.data, &topology, words[1], lock);
        }
        close(words[1]);
        if (child < 0) {
            code = poise_error_set(errno, "make testbed", name, NULL);
        } else {
            waitpid(child, NULL, 0);
            code = learn(words[0], name);
        }
        close(words[0]);
        if (code < 0) {
            folder_clear(folder.data);
        }
    }
    if (lock >= 0) {
        close(lock);
    }
    poise_buf_free(&folder);
    poise_wan_topology_free(&topology);
    return code;
}

/* ---- going down --------------------------------------------------------- */

/* Until a process has ended, or that moment. Whoever inherits it may take its
 * time to ask for its status. */
static void await_end(pid_t pid, uint64_t until_ns)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd look = {.fd = fd, .events = POLLIN};
    uint64_t now = poise_clock_ns();
    while (fd >= 0 && now < until_ns &&
           poll(&look, 1, (int)((until_ns - now) / 1000000) + 1) <= 0) {
        now = poise_clock_ns();
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* Kill the gateway that holds the lock, and wait until it is free. */
static int gateway_end(const char *folder, const char *name)
{
    struct poise_wan_testbed testbed = {0};
    struct poise_buf path = {0};
    uint64_t until = poise_clock_ns() + DOWN_TIMEOUT_NS;
    int lock = -EWOULDBLOCK;
    int code = state_read(file_of(folder, "state", &path), &testbed);
    if (code < 0) {
        code = poise_error_set(EBUSY, "take down testbed", name,
                               "it is just being made");
    } else {
        kill((pid_t)testbed.gateway, SIGKILL);
    }
    while (code == 0 && lock == -EWOULDBLOCK && poise_clock_ns() < until) {
        poise_sleep_ns(1000000);
        lock = folder_lock(folder, false);
    }
    /* Hosts die with it, one after the other. */
    for (unsigned i = 0; code == 0 && i < testbed.topology.hosts; i++) {
        await_end((pid_t)testbed.hosts[i].pid, until);
        free(testbed.hosts[i].name);
    }
    free(testbed.hosts);
    poise_wan_topology_free(&testbed.topology);
    poise_buf_free(&path);
    if (code == 0 && lock == -EWOULDBLOCK) {
        code = poise_error_set(ETIMEDOUT, "take down testbed", name,
                               "process %lld does not end",
                               (long long)testbed.gateway);
    }
    if (lock >= 0) {
        close(lock);
    }
    return code;
}

int poise_wan_down(const char *name)
{
    struct poise_buf folder = {0};
    int code = folder_of(name, &folder);
    if (code == 0 && access(poise_buf_str(&folder), F_OK) < 0) {
        code = poise_error_set(ENOENT, "find testbed", name,
                               "none of that name is up");
    }
    if (code == 0) {
        int lock = folder_lock(folder.data, true);
        if (lock == -EWOULDBLOCK) {
            code = gateway_end(folder.data, name);
        } else if (lock >= 0) {
            close(lock);
        } else {
            code = lock;
        }
    }
    if (code == 0) {
        folder_clear(folder.data);
    }
    poise_buf_free(&folder);
    return code;
}
