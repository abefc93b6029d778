/*
 * What the two proxies of a screen hear. The first byte of the input says from
 * whom the rest is: a server that is relayed, a viewer, a browser, the other
 * end at a viewer's side, the other end at a server's side. Whatever it is: an
 * error, or what it asks for within bounds.
 */
#include "../../fuzz/fuzz.h"

#include "remote/proxy/internal.h"
#include "remote/screen/internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WIDTH = 70, HEIGHT = 50, MESSAGES_MOST = 16, PIXELS_MOST = 1 << 20 };

static void check(bool good)
{
    if (!good) {
        abort();
    }
}

/* ---- a server ------------------------------------------------------------ */

static int take_pseudo(int32_t encoding, const struct poise_screen_rect *rect,
                       const void *data, size_t len, void *arg)
{
    (void)rect;
    (void)arg;
    check(encoding < 0 && (data || len == 0));
    return 0;
}

static int take_message(enum screen_message type, const void *data, size_t len,
                        void *arg)
{
    (void)arg;
    check(len <= SCREEN_CUT_TEXT_MOST + 7 && (data || len == 0));
    check(type != SCREEN_FENCE_MESSAGE || (len >= 4 && len <= 4 + 64));
    return 0;
}

static void hear_server(const uint8_t *data, size_t len)
{
    struct screen_relay relay = {.pseudo = take_pseudo,
                                 .message = take_message};
    struct screen_source source = {.fd = -1, .at = data, .end = data + len};
    struct screen_decoder decoder = {.source = &source, .relay = &relay};
    struct screen_rects rects = {0};

    check(screen_resize(&decoder, WIDTH, HEIGHT) == 0);
    for (int i = 0; i < MESSAGES_MOST && source.error == 0; i++) {
        uint8_t type = screen_u8(&source);
        if (type == 0) {
            screen_update(&decoder, &rects);
        } else if (source.error == 0) {
            screen_pass_on(&source, &relay, type);
        }
        for (size_t k = 0; k < rects.count; k++) {
            const struct poise_screen_rect *rect = &rects.rects[k];
            check(rect->x + rect->width <= decoder.picture.width &&
                  rect->y + rect->height <= decoder.picture.height);
        }
        if ((uint64_t)decoder.picture.width * decoder.picture.height >
            PIXELS_MOST) {
            break;
        }
    }
    screen_decoder_free(&decoder);
    free(rects.rects);
}

/* ---- a viewer, and the other end of its link ----------------------------- */

static void make_pair(int fds[2])
{
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
}

/* A screen comes, so that there is something to be asked for: with little
 * history, which would take longer to clear than all else takes. */
static void show_screen(struct proxy_view *view, struct proxy_viewer *viewer)
{
    struct poise_screen_codec_options options = {.memory_bytes = 1 << 16};
    uint32_t pixels[WIDTH * HEIGHT];
    struct poise_screen_picture picture = {pixels, WIDTH, HEIGHT};
    struct poise_screen_encoder *encoder;
    struct poise_buf message = {0};
    struct poise_reader body;

    for (uint32_t i = 0; i < WIDTH * HEIGHT; i++) {
        pixels[i] = i % 7 < 3 ? 0xffffff : i * 0x10305 & 0xffffff;
    }
    check(poise_screen_encoder_create(&options, &encoder) == 0);
    check(poise_screen_encode(encoder, &picture, NULL, 0, &message) == 0);
    body = poise_reader_of(message.data, message.len);
    check(proxy_viewer_take(view, viewer, PROXY_SCREEN, &body) == 0);
    poise_buf_free(&message);
    poise_screen_encoder_destroy(encoder);
}

static void run_viewer(struct proxy_view *view, struct proxy_viewer *viewer)
{
    viewer->state = PROXY_VIEWER_RUNNING;
    viewer->minor = 8;
    viewer->deadline_ns = 0;
    viewer->width = WIDTH;
    viewer->height = HEIGHT;
    check(proxy_damage_resize(&viewer->damage, WIDTH, HEIGHT) == 0);
    show_screen(view, viewer);
}

/* Bytes of the viewer, or, with a wire, of the other end. */
static void hear_viewer(const uint8_t *data, size_t len, bool socket, bool wire)
{
    struct proxy_view view = {.now_ns = poise_clock_ns()};
    struct proxy_viewer *viewer;
    int fds[2], link[2] = {-1, -1};

    view.buffer = poise_alloc(PROXY_BUFFER, 1);
    check(view.buffer);
    make_pair(fds);
    check(proxy_viewer_create(&view, fds[0], socket, false, &viewer) == 0);
    viewer->retry_ns = UINT64_MAX;
    if (!wire || (len > 0 && data[0] & 1)) {
        run_viewer(&view, viewer);
    }
    if (wire) {
        static const char hello[] = "POISEVNC\1\0\0\0\0\0\0";
        make_pair(link);
        check(proxy_wire_create(link[0], NULL, NULL, NULL,
                                &viewer->channel.wire) == 0);
        viewer->channel.begun_ns = view.now_ns;
        check(write(link[1], hello, sizeof hello) == sizeof hello);
        check(write(fds[1], "RFB 003.008\n\1", 13) == 13);
    }
    for (int i = 0; i < MESSAGES_MOST && !viewer->over; i++) {
        static unsigned char drain[PROXY_BUFFER];
        size_t step = len < 1 << 15 ? len : 1 << 15;
        ssize_t done = write(wire ? link[1] : fds[1], data, step);
        check(done >= 0 || step == 0);
        data += done;
        len -= (size_t)done;
        viewer->can_read = viewer->can_write = true;
        if (viewer->channel.wire) {
            viewer->channel.wire->can_read = true;
        }
        proxy_viewer_turn(&view, viewer);
        while (read(fds[1], drain, sizeof drain) > 0) {
        }
        while (wire && read(link[1], drain, sizeof drain) > 0) {
        }
    }
    check(viewer->damage.width == viewer->width || viewer->width == 0);
    proxy_viewer_destroy(&view, viewer);
    close(fds[1]);
    if (wire) {
        close(link[1]);
    }
    free(view.buffer);
}

/* ---- the other end at the server's side ---------------------------------- */

static void hear_link(const uint8_t *data, size_t len)
{
    struct proxy_upstream upstream = {.fd = -1, .wake = -1, .running = true};
    struct proxy_wire wire = {.slot = -1};
    enum proxy_record kind;
    struct poise_reader body;

    pthread_mutex_init(&upstream.lock, NULL);
    pthread_cond_init(&upstream.told, NULL);
    poise_buf_append(&wire.in, data, len);
    while (proxy_wire_take(&wire, PROXY_INPUT_MOST, &kind, &body) > 0) {
        struct proxy_channel channel = {.wire = &wire, .is_up = true};
        if (kind != PROXY_MESSAGE) {
            proxy_channel_record(&channel, kind, &body, 1000);
        } else if (poise_reader_left(&body) > 0) {
            enum proxy_message message = (enum proxy_message) * body.pos++;
            proxy_upstream_take(&upstream, message, &body);
        }
    }
    check(upstream.to_server.len <= len);
    poise_buf_free(&upstream.to_server);
    poise_buf_free(&wire.in);
    poise_buf_free(&wire.out);
    pthread_cond_destroy(&upstream.told);
    pthread_mutex_destroy(&upstream.lock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    enum { WAYS = 5 };
    if (len == 0) {
        return 0;
    }
    switch (data[0] % WAYS) {
    case 0:
        hear_server(data + 1, len - 1);
        break;
    case 1:
        hear_viewer(data + 1, len - 1, false, false);
        break;
    case 2:
        hear_viewer(data + 1, len - 1, true, false);
        break;
    case 3:
        hear_viewer(data + 1, len - 1, false, true);
        break;
    default:
        hear_link(data + 1, len - 1);
    }
    return 0;
}
