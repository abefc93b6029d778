/*
 * A compressed archive: what the file says of its frames, and its members, by
 * the table of frames where there is one, and read through. Nothing is made of
 * them.
 */
#include "../../fuzz/fuzz.h"

#include "walk/archive/internal.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMBERS_MOST = 1000 };

static void read_members(struct tar_source *source)
{
    struct tar_memory memory = {0};
    uint64_t at = 0;
    for (int i = 0; i < MEMBERS_MOST && at < source->size; i++) {
        struct tar_member m;
        int code = tar_next(source, at, &m, &memory);
        if (code == 0) {
            break;
        }
        if (code == 1 && (m.end <= at || m.end < m.data + m.data_size)) {
            abort();
        }
        if (code == 1 && m.data_size > 0) {
            (void)tar_look(source, m.data,
                           m.data_size < 512 ? (size_t)m.data_size : 512);
        }
        uint64_t next =
            code == 1 ? m.end : tar_resync(source, m.start + TAR_BLOCK);
        if (next <= at && next < source->size) {
            abort();
        }
        at = next;
    }
    tar_memory_free(&memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct tar_window window = {0};
    struct tar_frames *frames = NULL;
    uint64_t size = UINT64_MAX;
    int fd = memfd_create("input", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, len) != (ssize_t)len) {
        abort();
    }
    int code = tar_frames_read(fd, len, "input", &frames, &size);
    if (code != (frames != NULL)) {
        abort();
    }
    for (int i = 0; i < 2; i++) {
        struct tar_source source = {.fd = fd,
                                    .size = i ? UINT64_MAX : size,
                                    .path = "input",
                                    .packed = true,
                                    .frames = i ? NULL : frames,
                                    .window = &window};
        tar_window_reset(&window);
        read_members(&source);
    }
    tar_window_free(&window);
    tar_frames_free(frames);
    close(fd);
    return 0;
}
