/* Libraries that the build may leave out: its options say which. */
#include <poise/parts.h>

#include <errno.h>

const struct poise_part_about poise_parts[POISE_PARTS] = {
    [POISE_PART_HWLOC] = {POISE_HAVE_HWLOC, "hwloc", "libhwloc-dev",
                          "NUMA domains of ranks"},
    [POISE_PART_SQLITE] = {POISE_HAVE_SQLITE, "SQLite", "libsqlite3-dev",
                           "inventories as SQLite files, comparing with "
                           "inventories, comparing links"},
    [POISE_PART_ZLIB] = {POISE_HAVE_ZLIB, "zlib", "zlib1g-dev",
                         "graphs packed by gzip, packed pixels of VNC"},
    [POISE_PART_OPENSSL] = {POISE_HAVE_OPENSSL, "OpenSSL", "libssl-dev",
                            "send, tunnel, wire, vnc serve and view, jobs of "
                            "solve and desync run of several processes"},
    [POISE_PART_IO_URING] = {POISE_HAVE_IO_URING, "io_uring", "linux-libc-dev",
                             "--io io_uring (threads do it instead)"},
    [POISE_PART_CURL] = {POISE_HAVE_CURL, "libcurl", "libcurl4-openssl-dev",
                         "--etcd"},
    [POISE_PART_OTF2] = {POISE_HAVE_OTF2, "OTF2", "libotf2-trace-dev",
                         "--otf2"},
};

int poise_part_missing(enum poise_part part, const char *doing,
                       const char *what)
{
    return poise_error_set(ENOTSUP, doing, what,
                           "this build of poise has no %s (Debian's package "
                           "%s, when poise is built)",
                           poise_parts[part].name, poise_parts[part].package);
}
