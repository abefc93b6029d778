/*
 * An archive, of any program: its members one after the other, as when it is
 * read through. Nothing is made of them.
 */
#include "../../fuzz/fuzz.h"

#include "walk/archive/internal.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct tar_source source = {
        .fd = -1, .data = (const char *)data, .size = len, .path = "input"};
    struct tar_memory memory = {0};
    struct poise_buf name = {0};
    for (uint64_t at = 0; at < len;) {
        struct tar_member m;
        int code = tar_next(&source, at, &m, &memory);
        if (code == 0) {
            break;
        }
        /* Either a member that lies in the archive, or an error; and it goes
         * on. */
        if (code == 1 && (m.end <= at || m.data + m.data_size > len)) {
            abort();
        }
        if (code == 1) {
            (void)tar_place_name(m.name, &name);
        }
        uint64_t next =
            code == 1 ? m.end : tar_resync(&source, m.start + TAR_BLOCK);
        if (next <= at) {
            abort();
        }
        at = next;
    }
    tar_memory_free(&memory);
    poise_buf_free(&name);
    return 0;
}
