/*
 * The mounts of a host. Files are shared, but for what belongs to a machine:
 * its processes, shared memory, names of hosts, and /run, where servers keep
 * their sockets and process ids. What was in /run when the host was made stays
 * there; what is put there later is the host's own.
 *
 * Runs in a child between fork and its end.
 */
#include "wan/host/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUIET (MS_NOSUID | MS_NODEV)

/* ---- /run --------------------------------------------------------------- */

/* One entry of the old /run, under its name in the new one. What cannot be had
 * is not there. */
static void run_keep(int old, const char *name)
{
    char from[300], to[300], target[300];
    struct stat st;
    snprintf(from, sizeof from, "/proc/self/fd/%d/%s", old, name);
    snprintf(to, sizeof to, "/run/%s", name);
    if (fstatat(old, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return;
    }
    if (S_ISLNK(st.st_mode)) {
        ssize_t len = readlinkat(old, name, target, sizeof target - 1);
        if (len > 0) {
            target[len] = '\0';
            int linked = symlink(target, to);
            (void)linked;
        }
        return;
    }
    bool made = S_ISDIR(st.st_mode) ? mkdir(to, 0755) == 0
                                    : mknod(to, S_IFREG | 0600, 0) == 0;
    if (made && mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0) {
        (void)(S_ISDIR(st.st_mode) ? rmdir(to) : unlink(to));
    }
}

/* Where it is refused, hosts share /run. */
static void mount_run(void)
{
    int old = open("/run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = NULL;
    struct dirent *entry;
    if (old < 0 || mount("run", "/run", "tmpfs", QUIET, "mode=755") < 0) {
        goto close_old;
    }
    dir = fdopendir(dup(old));
    while (dir && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0) {
            run_keep(old, entry->d_name);
        }
    }
    /* Where Debian's sshd shuts itself in; else whoever starts it makes it. */
    mkdir("/run/sshd", 0755);
    if (dir) {
        closedir(dir);
    }
close_old:
    if (old >= 0) {
        close(old);
    }
}

/* ---- what servers expect ------------------------------------------------ */

/* Folders that sshd shuts itself in must be root's, and outside root is
 * somebody else: empty ones stand in for them. */
static void mount_empty(void)
{
    static const char *const folders[] = {"/var/empty", "/var/lib/empty",
                                          "/usr/share/empty.sshd"};
    struct stat st;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (stat(folders[i], &st) == 0 && S_ISDIR(st.st_mode) &&
            st.st_uid != 0) {
            mount("empty", folders[i], "tmpfs", QUIET | MS_NOEXEC, "mode=755");
        }
    }
}

/* Terminals that can be given to users of the host. */
static void mount_terminals(void)
{
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=0620,gid=5") == 0) {
        mount("/dev/pts/ptmx", "/dev/ptmx", NULL, MS_BIND, NULL);
    }
}

/* All users of a host may listen where outside only root may. */
static void open_ports(void)
{
    int fd = open("/proc/sys/net/ipv4/ip_unprivileged_port_start",
                  O_WRONLY | O_CLOEXEC);
    ssize_t done = fd < 0 ? 0 : write(fd, "0", 1);
    (void)done;
    if (fd >= 0) {
        close(fd);
    }
}

int wan_mounts(const char *hosts_file, const char *resolv_file,
               enum wan_users users, const char **doing)
{
    *doing = "part the mounts";
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return -1;
    }
    *doing = "mount /proc";
    if (mount("proc", "/proc", "proc", QUIET | MS_NOEXEC, NULL) < 0) {
        return -1;
    }
    /* Shared memory must not lead from one host to another. */
    *doing = "mount /dev/shm";
    if (mount("shm", "/dev/shm", "tmpfs", QUIET, NULL) < 0) {
        return -1;
    }
    *doing = "mount /etc/hosts";
    if (mount(hosts_file, "/etc/hosts", NULL, MS_BIND, NULL) < 0) {
        return -1;
    }
    /* The host's own devices, for programs that look for them there, as UCX
     * does. Where the mount is refused, only those programs suffer; so it is
     * with all that follows. */
    mount("sysfs", "/sys", "sysfs", QUIET | MS_NOEXEC, NULL);
    mount_run();
    if (resolv_file) {
        mount(resolv_file, "/etc/resolv.conf", NULL, MS_BIND, NULL);
    }
    if (users != WAN_ROOT) {
        mount_empty();
        open_ports();
    }
    if (users == WAN_SEVERAL) {
        mount_terminals();
    }
    return 0;
}
