/*
 * What a server of RFB says once pixels were asked for: the input is a stream
 * of update messages to a screen of 70 x 50 pixels. Whatever it is: an error or
 * a picture, of at most as many pixels as are allowed.
 */
#include "../../fuzz/fuzz.h"

#include "remote/screen/internal.h"

#include <stdlib.h>

enum { WIDTH = 70, HEIGHT = 50, PIXELS_MOST = 1 << 20, MESSAGES_MOST = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct screen_source source = {.fd = -1, .at = data, .end = data + len};
    struct screen_decoder decoder = {.source = &source};
    struct screen_rects rects = {0};
    if (screen_resize(&decoder, WIDTH, HEIGHT) < 0) {
        abort();
    }
    for (int i = 0; i < MESSAGES_MOST && source.error == 0; i++) {
        screen_update(&decoder, &rects);
        for (size_t k = 0; k < rects.count; k++) {
            const struct poise_screen_rect *rect = &rects.rects[k];
            if (rect->x + rect->width > decoder.picture.width ||
                rect->y + rect->height > decoder.picture.height) {
                abort();
            }
        }
        /* Screens that take long to clear say nothing new. */
        if ((uint64_t)decoder.picture.width * decoder.picture.height >
            PIXELS_MOST) {
            break;
        }
    }
    screen_decoder_free(&decoder);
    free(rects.rects);
    return 0;
}
