/*
 * Inside room remote/proxy.
 *
 * serve.c is the end that follows a server: it waits for links of the other
 * end, and has a session (session.c) for each viewer there, whose thread
 * (upstream.c) follows the server. view.c is the end that viewers connect to; a
 * viewer (viewer.c, messages.c) has its connection to the other end, the
 * picture, and what of it is still to be said (update.c), in its pixel format
 * (pixels.c) by an encoding (encode*.c). channel.c carries messages between a
 * session and its viewer, over one link after the other; damage.c knows which
 * parts of a picture changed; websocket.c speaks to browsers.
 *
 * All sockets belong to the one thread that waits for them and nothing blocks
 * there; a session's thread only reads from its server, and shares with the
 * other one what stands in `struct proxy_upstream` behind a lock.
 */
#ifndef POISE_REMOTE_PROXY_INTERNAL_H
#define POISE_REMOTE_PROXY_INTERNAL_H

#include <poise/codec.h>
#include <poise/vnc.h>

#include "remote/link/link.h"
#include "remote/screen/screen.h"

#include <poll.h>
#include <pthread.h>
#include <zlib.h>

enum {
    PROXY_VERSION = 1,
    PROXY_TOKEN = 16, /* bytes that name a session */
    PROXY_BUFFER = 1 << 17,
    PROXY_SESSIONS = 64,         /* of a process, at a time */
    PROXY_PENDING = 64,          /* links that did not say yet what they want */
    PROXY_LINK_S = 20,           /* until they have */
    PROXY_TURN = 1 << 20,        /* bytes; then others have their turn */
    PROXY_RECORD_MOST = 1 << 28, /* bytes of a record: a picture */
    PROXY_INPUT_MOST = 8 << 20,  /* the same from a viewer's side: a text */
    PROXY_KEPT_MOST = 1 << 20,   /* not acknowledged; then a viewer waits */
};
#define PROXY_SECOND_NS UINT64_C(1000000000)

/* ---- damage.c ----------------------------------------------------------- */

enum { PROXY_TILE = 16, PROXY_RECT_PIXELS = 1 << 16 };

/** Which tiles of a picture changed: as much memory however often. */
struct proxy_damage {
    uint32_t width, height; /* of the picture */
    uint32_t columns, rows;
    uint8_t *tiles;
    size_t count; /* of those that changed */
};
/** For a picture of this size, all of which changed. */
int proxy_damage_resize(struct proxy_damage *damage, uint32_t width,
                        uint32_t height);
void proxy_damage_free(struct proxy_damage *damage);
void proxy_damage_add(struct proxy_damage *damage,
                      const struct poise_screen_rect *rect);
/** Whether something in this area changed. */
bool proxy_damage_has(const struct proxy_damage *damage,
                      const struct poise_screen_rect *area);
/** Append the tiles that changed and touch the area as rectangles of at most
 * PROXY_RECT_PIXELS that lie in the picture, and forget them. */
int proxy_damage_take(struct proxy_damage *damage,
                      const struct poise_screen_rect *area,
                      struct poise_buf *rects);

/* ---- channel.c ---------------------------------------------------------- */

/** Messages between a session and its viewer. */
enum proxy_message {
    /* From the server's side. */
    PROXY_TYPES = 1, /* of security, a byte each */
    PROXY_CHALLENGE, /* 16 bytes */
    PROXY_WELCOME,   /* the server is content with the viewer */
    PROXY_READY,     /* width and height (varints), and the name */
    PROXY_FAILED,    /* it is over; why, as text */
    PROXY_SCREEN,    /* of the codec */
    PROXY_PSEUDO,    /* encoding (4 bytes), x, y, width, height (varints), and
                        what came behind these */
    PROXY_PASSED,    /* a message of the server as it came */
    PROXY_NOTE,      /* for the user */
    /* From the viewer's side. */
    PROXY_TYPE = 32, /* of security: a byte */
    PROXY_ANSWER,    /* 16 bytes */
    PROXY_SHARED,    /* 1, or 0: others are to be thrown out */
    PROXY_ABLE,      /* bits of what the viewer understands, a varint */
    PROXY_INPUT,     /* messages of the viewer as they came */
    PROXY_REPLY,     /* of the codec */
};

/** What a viewer understands beside pixels. */
enum proxy_able {
    PROXY_ABLE_CURSOR = 1,
    PROXY_ABLE_ALPHA_CURSOR = 2,
    PROXY_ABLE_NAME = 4,
    PROXY_ABLE_LED = 8,
    PROXY_ABLE_QEMU_KEYS = 16,
    PROXY_ABLE_EXTENDED_SIZE = 32,
    PROXY_ABLE_CLIPBOARD = 64,
};

/** A link, and what of it was not looked at yet. */
struct proxy_wire {
    struct remote_link link;
    char *name; /* owned: of the other end */
    int slot;
    bool can_read, can_write;
    bool more;  /* bytes may be there that poll does not see */
    bool heard; /* something came since it was looked at */
    struct poise_buf in, out;
    size_t in_at, out_at;       /* what was taken, and written */
    uint64_t in_base, out_base; /* bytes before these */
};

/** Records of a link; all but MESSAGE are of this link alone. */
enum proxy_record {
    PROXY_BEGIN = 1, /* a session is to begin */
    PROXY_RESUME,    /* or to go on: its token, and how many messages came */
    PROXY_ACCEPT,    /* the same as an answer */
    PROXY_REFUSE,    /* text */
    PROXY_MESSAGE,   /* its kind and body */
    PROXY_ACK,       /* how many messages came (varint) */
    PROXY_PING,      /* 8 bytes, for PONG */
    PROXY_PONG,
    PROXY_PAD, /* zeros */
    PROXY_BYE, /* the session is over */
};

/** A frame that went and was not acknowledged. */
struct proxy_frame {
    uint64_t number, sent_ns;
};
enum { PROXY_FRAMES = 64 };

/** Messages in both directions, in order, none lost and none twice, while one
 * link follows the other. Invariant: the messages first .. next-1 are in
 * `kept`; the other end has all before `first`. */
struct proxy_channel {
    struct proxy_wire *wire; /* owned; NULL: there is none */
    bool is_up;              /* both know where they are */
    uint32_t pad_bytes;
    struct poise_buf kept;
    uint64_t first, next; /* numbers of messages that go */
    uint64_t received;    /* messages that came */
    uint64_t acked;       /* of them, those that were acknowledged */
    uint64_t begun_ns;    /* of the link */
    unsigned pings;       /* since the other end said something */
    uint64_t ping_ns, ack_ns;
    uint64_t rtt_ns; /* least so far; 0: not known */
    struct proxy_frame frames[PROXY_FRAMES];
    unsigned frame_count;
};

/** A wire over an accepted socket, or to `to` (fd -1). Takes `fd` if it
 * succeeds. */
int proxy_wire_create(int fd, const struct remote_target *to,
                      const struct remote_keys *keys, const char *host,
                      struct proxy_wire **out);
/** NULL is allowed. */
void proxy_wire_destroy(struct proxy_wire *wire);
/** Make it open, and read: 1 once it is open, 0 not yet. */
int proxy_wire_read(struct proxy_wire *wire, unsigned char *buffer);
/** Write what there is. */
int proxy_wire_write(struct proxy_wire *wire);
short proxy_wire_events(const struct proxy_wire *wire);
/** Append a record. */
void proxy_wire_put(struct proxy_wire *wire, enum proxy_record kind,
                    const void *data, size_t len);
/** The next record that is there whole: 1; 0: none; borrowed until the next
 * call of anything. -EBADMSG: none can be that long. */
int proxy_wire_take(struct proxy_wire *wire, size_t most,
                    enum proxy_record *kind, struct poise_reader *body);

void proxy_channel_free(struct proxy_channel *channel);
/** The link is gone. */
void proxy_channel_drop(struct proxy_channel *channel);
/** Take a link, of which the other end said that so many messages came; owns
 * it from now on. -EBADMSG: that cannot be. */
int proxy_channel_resume(struct proxy_channel *channel, struct proxy_wire *wire,
                         uint64_t received);
/** Send a message; it is kept until it is acknowledged. */
int proxy_channel_send(struct proxy_channel *channel, enum proxy_message kind,
                       const void *data, size_t len);
/** The message that went last is a frame. */
void proxy_channel_mark_frame(struct proxy_channel *channel, uint64_t now);
/** Whether another frame would not wait for longer than a round trip. */
bool proxy_channel_has_room(const struct proxy_channel *channel, uint64_t now);
/** Bytes that are kept. */
size_t proxy_channel_kept(const struct proxy_channel *channel);
/** A record that is no message; 1: it was BYE. */
int proxy_channel_record(struct proxy_channel *channel, enum proxy_record kind,
                         struct poise_reader *body, uint64_t now);
/** Acknowledge (at once, or soon), ask whether the other end is there, pad, and
 * write. -ETIMEDOUT: it says nothing. */
int proxy_channel_flush(struct proxy_channel *channel, bool at_once,
                        uint64_t now);
/** When to flush whatever happens: 0 for never. */
uint64_t proxy_channel_due(const struct proxy_channel *channel);

/* ---- messages.c --------------------------------------------------------- */

enum {
    PROXY_SET_FORMAT = 0,
    PROXY_SET_ENCODINGS = 2,
    PROXY_ASK = 3,
    PROXY_KEY = 4,
    PROXY_POINTER = 5,
    PROXY_CUT_TEXT = 6,
    PROXY_CONTINUOUS = 150,
    PROXY_FENCE = 248,
    PROXY_SET_SIZE = 251,
    PROXY_QEMU = 255,
};
enum {
    PROXY_POINTER_BYTES = 6,
    PROXY_MOTION_MS = 15, /* between motions of a pointer */
};
/** Bytes of the viewer's message that begins here; 0: more are needed to know;
 * -EBADMSG: there is no such message, or none so long. */
int64_t proxy_message_len(const unsigned char *data, size_t len);
/** Whether a server is to have it. */
bool proxy_message_is_input(unsigned char type);
static inline uint32_t proxy_u16(const unsigned char *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}
static inline uint32_t proxy_u32(const unsigned char *at)
{
    return proxy_u16(at) << 16 | proxy_u16(at + 2);
}
void proxy_put_u16(struct poise_buf *out, uint32_t value);
void proxy_put_u32(struct poise_buf *out, uint32_t value);

/* ---- upstream.c --------------------------------------------------------- */

/** What a thread that follows a server shares with the one that serves. */
struct proxy_upstream {
    struct proxy_upstream *next; /* of those that are asked to end */
    const struct poise_remote_vnc_options *options;
    pthread_t thread;
    int wake;  /* eventfd: the thread is to look */
    int ready; /* eventfd, borrowed: there is something for the other one */
    pthread_mutex_t lock;
    pthread_cond_t told;
    /* All below behind the lock. */
    bool stop, running;
    int fd; /* of the server, to be shut down; -1 */
    unsigned char type, answer[SCREEN_CHALLENGE_BYTES];
    bool has_type, has_answer, has_shared, shared;
    uint64_t able;
    bool able_changed, continuous;
    struct poise_buf to_server; /* not written yet */
    struct poise_buf events;    /* kind, length (4 bytes each), body */
    struct poise_screen_picture picture;
    struct proxy_damage damage;
    bool over; /* the thread is done: the last event says why */
};
int proxy_upstream_create(const struct poise_remote_vnc_options *options,
                          int ready, struct proxy_upstream **out);
/** Ask the thread to end, which may take as long as a name or a connection
 * does. */
void proxy_upstream_stop(struct proxy_upstream *upstream);
bool proxy_upstream_is_over(struct proxy_upstream *upstream);
/** Ends the thread, and waits for it. NULL is allowed. */
void proxy_upstream_destroy(struct proxy_upstream *upstream);
/** A message of the viewer's side; -EBADMSG. */
int proxy_upstream_take(struct proxy_upstream *upstream,
                        enum proxy_message kind, struct poise_reader *body);

/* ---- session.c ---------------------------------------------------------- */

struct proxy_serve;

/** A link that did not say yet what it wants. */
struct proxy_arrival {
    struct proxy_arrival *next;
    struct proxy_wire *wire;
    unsigned char from[REMOTE_SOURCE_BYTES];
    uint64_t deadline_ns;
    bool over;
};

/** A viewer's session at the server's side. */
struct proxy_session {
    struct proxy_session *next;
    unsigned char token[PROXY_TOKEN];
    uint64_t number;
    struct proxy_channel channel;
    struct proxy_upstream *upstream;
    struct poise_screen_encoder *encoder;
    struct poise_buf events, rects, message;
    uint64_t lost_ns; /* since when there is no link; 0: there is one */
    bool over, told;  /* to be freed; what failed was said */
};
int proxy_session_create(struct proxy_serve *serve, struct proxy_session **out);
/** Its thread is left to `serve` to be waited for. */
void proxy_session_destroy(struct proxy_serve *serve,
                           struct proxy_session *session);
/** Go on over this link, of which the other end said how many messages came;
 * takes it if it succeeds. */
int proxy_session_resume(struct proxy_serve *serve,
                         struct proxy_session *session, struct proxy_wire *wire,
                         uint64_t received);
/** Do what can be done. What its link does is never an error. */
void proxy_session_turn(struct proxy_serve *serve,
                        struct proxy_session *session);

/** The end that follows a server. */
struct proxy_serve {
    struct poise_remote_vnc_options options;
    struct remote_keys *keys;
    int listener, listener_slot;
    uint64_t pause_ns;
    int ready; /* eventfd: a session's thread has something */
    int ready_slot;
    struct proxy_arrival *arrivals; /* latest first */
    struct proxy_session *sessions;
    struct proxy_upstream *leaving;
    unsigned arrival_count, session_count;
    uint64_t numbers, now_ns;
    struct poise_buf fds;
    unsigned char *buffer;
    struct poise_remote_vnc_stats stats;
};

/* ---- pixels.c ----------------------------------------------------------- */

/** A viewer's pixels. */
struct proxy_format {
    uint8_t bytes; /* of one: 1, 2 or 4 */
    uint8_t depth;
    bool big, mapped; /* big-endian; numbers of a palette */
    uint32_t max[3], shift[3];
    bool plain;  /* as ours are in memory */
    bool tight;  /* TPIXEL: red, green, blue */
    int compact; /* CPIXEL of 3 bytes: the first byte of 4 that counts; -1 */
    uint32_t red[256], green[256], blue[256];
};
void proxy_format_default(struct proxy_format *out);
/** 16 bytes of a viewer; -EBADMSG. */
int proxy_format_parse(const unsigned char *bytes, struct proxy_format *out);
/** As RFB has it: 16 bytes. */
void proxy_format_put(const struct proxy_format *format, struct poise_buf *out);
/** The message with the palette of a mapped one. */
void proxy_format_put_palette(struct poise_buf *out);

enum proxy_pixel { PROXY_PIXEL, PROXY_CPIXEL, PROXY_TPIXEL };
/** Bytes of a pixel. */
size_t proxy_pixel_bytes(const struct proxy_format *format,
                         enum proxy_pixel kind);
/** Write `count` pixels; returns behind them. */
uint8_t *proxy_pixels_put(const struct proxy_format *format,
                          enum proxy_pixel kind, const uint32_t *pixels,
                          size_t count, uint8_t *to);
/** Append `height` rows of `width` pixels, which lie `stride` apart. -ENOMEM.
 */
int proxy_pixels_append(const struct proxy_format *format,
                        enum proxy_pixel kind, uint32_t width, uint32_t height,
                        const uint32_t *pixels, size_t stride,
                        struct poise_buf *out);

/* ---- encode.c, encode_zrle.c, encode_tight.c ---------------------------- */

enum { PROXY_DEFLATES = 4 };

/** What lasts as long as a viewer's connection. */
struct proxy_encoder {
    z_stream streams[PROXY_DEFLATES]; /* ZRLE, and three of Tight */
    bool begun[PROXY_DEFLATES];
    struct poise_buf plain, packed;
};
void proxy_encoder_free(struct proxy_encoder *encoder);
/** Append a rectangle of `pixels` with rows of `stride`: its head and data.
 * -ENOMEM. */
int proxy_encode(struct proxy_encoder *encoder, int32_t encoding,
                 const struct proxy_format *format,
                 const struct poise_screen_rect *rect, const uint32_t *pixels,
                 size_t stride, struct poise_buf *out);
int proxy_encode_zrle(struct proxy_encoder *encoder,
                      const struct proxy_format *format, uint32_t width,
                      uint32_t height, const uint32_t *pixels, size_t stride,
                      struct poise_buf *out);
int proxy_encode_tight(struct proxy_encoder *encoder,
                       const struct proxy_format *format, uint32_t width,
                       uint32_t height, const uint32_t *pixels, size_t stride,
                       struct poise_buf *out);
/** Compress `plain` into `packed`, and empty it. */
int proxy_deflate(struct proxy_encoder *encoder, unsigned stream);

/** Colours of a part of a picture, in the order in which they came. */
struct proxy_palette {
    uint32_t colours[256];
    unsigned count;
    uint16_t slots[1024]; /* 1 + a colour's place */
};
/** False: there are more than `most`. */
bool proxy_palette_fill(struct proxy_palette *palette, unsigned most,
                        uint32_t width, uint32_t height, const uint32_t *pixels,
                        size_t stride);
/** The place of a colour that it has. */
unsigned proxy_palette_find(const struct proxy_palette *palette,
                            uint32_t colour);

/* ---- websocket.c -------------------------------------------------------- */

enum { PROXY_SOCKET_HEAD_MOST = 8192 };

/** Frames of a browser. */
struct proxy_socket {
    bool on, begun; /* speaks WebSocket; has shaken hands */
    bool closed;
    bool beyond; /* others than this machine may connect */
};
/** Take what came in `raw`, append what was in it to `plain` and what has to be
 * answered to `out`. -EBADMSG, after which `out` is written as far as it
 * goes. */
int proxy_socket_take(struct proxy_socket *socket, struct poise_buf *raw,
                      struct poise_buf *plain, struct poise_buf *out);
/** Append data as a frame. */
void proxy_socket_put(const void *data, size_t len, struct poise_buf *out);

/* ---- viewer.c, viewer_run.c, update.c ----------------------------------- */

struct proxy_view;

enum proxy_viewer_state {
    PROXY_VIEWER_VERSION, /* it is to say its version */
    PROXY_VIEWER_OFFER,   /* the server is to say what it offers */
    PROXY_VIEWER_TYPE,    /* it is to choose */
    PROXY_VIEWER_SERVER,  /* the server is to go on */
    PROXY_VIEWER_ANSWER,  /* it is to answer the challenge */
    PROXY_VIEWER_INIT,    /* it is to say whether the screen is shared */
    PROXY_VIEWER_RUNNING,
    PROXY_VIEWER_ENDING, /* when all is written */
};

/** What the server said last beside pixels, of one encoding. */
struct proxy_pseudo {
    bool known, due; /* the viewer is to be told */
    struct poise_screen_rect rect;
    struct poise_buf data;
};
enum { PROXY_PSEUDOS = 6 };

struct proxy_viewer {
    struct proxy_viewer *next;
    uint64_t number;
    int fd, slot;
    bool can_read, can_write, over;
    struct proxy_socket socket;
    struct poise_buf raw, in, out, framed;
    size_t out_at; /* written, of `out`, or `framed` */
    enum proxy_viewer_state state;
    int minor; /* of its version: 3, 7 or 8 */
    unsigned char offer[8];
    size_t offer_count;
    bool has_offer, challenged, welcome;
    uint64_t deadline_ns; /* of the handshake */
    uint64_t bytes_out;

    struct proxy_channel channel;
    bool has_token;
    unsigned char token[PROXY_TOKEN];
    uint64_t retry_ns, backoff_ns, lost_ns;
    bool told_lost;

    struct poise_screen_decoder *decoder;
    const struct poise_screen_picture *picture; /* NULL: none came */
    struct proxy_damage damage;
    uint32_t width, height; /* that the viewer knows of */
    struct proxy_format format;
    int32_t encoding;
    uint64_t able;
    bool sizes, fences, continuous_able; /* it understands these */
    bool asked, continuous;
    bool repeat; /* it asked for pixels that it has: there is an answer */
    unsigned char buttons; /* of its pointer, that are pressed */
    bool moved;            /* since `moved_ns`: `motion` is to go */
    unsigned char motion[PROXY_POINTER_BYTES];
    uint64_t moved_ns;             /* when a motion went last */
    struct poise_screen_rect area; /* that it asked for */
    struct poise_screen_rect stream_area;
    struct proxy_pseudo pseudos[PROXY_PSEUDOS];
    struct proxy_encoder encoder;
    struct poise_buf rects, reply, black;
    struct poise_buf failure; /* to be told when its version is known */
};
int proxy_viewer_create(struct proxy_view *view, int fd, bool socket,
                        bool beyond, struct proxy_viewer **out);
void proxy_viewer_destroy(struct proxy_view *view, struct proxy_viewer *viewer);
void proxy_viewer_turn(struct proxy_view *view, struct proxy_viewer *viewer);
short proxy_viewer_events(const struct proxy_viewer *viewer);
/** When it has to be looked at whatever happens: 0 for never. */
uint64_t proxy_viewer_due(const struct proxy_viewer *viewer);
/** It cannot go on: tell it why as far as the protocol lets us. */
void proxy_viewer_fail(struct proxy_viewer *viewer, const char *why);
/** What came from it once it runs: bytes taken, or negative. */
int proxy_viewer_message(struct proxy_viewer *viewer, const unsigned char *data,
                         size_t len);
/** Where its pointer is, if that is to go, and it is time or has to be at
 * `once`. */
int proxy_viewer_move(struct proxy_viewer *viewer, bool once, uint64_t now);
/** When it is time: 0 for never. */
uint64_t proxy_viewer_move_due(const struct proxy_viewer *viewer);
/** A message of the server's side. */
int proxy_viewer_take(struct proxy_view *view, struct proxy_viewer *viewer,
                      enum proxy_message kind, struct poise_reader *body);
/** Where the last one of an encoding is kept; NULL: not known. */
struct proxy_pseudo *proxy_pseudo_of(struct proxy_viewer *viewer,
                                     int32_t encoding);
/** Send the viewer what it asked for, if there is something. */
int proxy_viewer_update(struct proxy_viewer *viewer,
                        struct poise_remote_vnc_stats *stats);
/** The server's screen has another size. */
int proxy_viewer_resized(struct proxy_viewer *viewer);

/** The end that viewers connect to. */
struct proxy_view {
    struct poise_remote_vnc_options options;
    struct remote_keys *keys;
    struct remote_name via_name;
    struct remote_target via;
    struct {
        int fd, slot;
        bool socket, beyond;
    } listeners[2];
    unsigned listener_count;
    uint64_t pause_ns;
    struct proxy_viewer *viewers;
    unsigned viewer_count;
    uint64_t numbers, now_ns;
    struct poise_buf fds;
    unsigned char *buffer;
    struct poise_remote_vnc_stats stats;
};

/* ---- loop.c ------------------------------------------------------------- */

/** Among what is waited for, at *slot; -1 where there is nothing to wait for.
 */
void proxy_want(struct poise_buf *fds, int fd, short events, int *slot);
/** What was found of a slot. */
short proxy_found(const struct poise_buf *fds, int slot);
/** Wait until `due` (0: for ever), at most for a second. */
int proxy_await(struct poise_buf *fds, uint64_t due);
void proxy_sooner(uint64_t *due, uint64_t at);
void proxy_log(const struct poise_remote_vnc_options *options, const char *fmt,
               ...) POISE_PRINTF(2, 3);
/** Report the last error. */
void proxy_problem(const struct poise_remote_vnc_options *options);
/** Open a listener: -EINVAL without keys beyond this machine. */
int proxy_listen(const struct poise_remote_vnc_options *options,
                 const struct remote_keys *keys, const char *address,
                 const char *what, bool *beyond);
int proxy_keys_create(const struct poise_remote_vnc_options *options,
                      bool serves, struct remote_keys **out);
int proxy_bad(const char *why);

#endif
