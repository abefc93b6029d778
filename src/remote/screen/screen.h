/*
 * For other rooms of wing remote: a server followed by a proxy, which wants all
 * that it says, not pixels alone, and lets somebody else answer for it.
 */
#ifndef POISE_REMOTE_SCREEN_H
#define POISE_REMOTE_SCREEN_H

#include <poise/screen.h>

/** Numbers of the protocol. */
enum screen_encoding {
    SCREEN_RAW = 0,
    SCREEN_COPYRECT = 1,
    SCREEN_RRE = 2,
    SCREEN_HEXTILE = 5,
    SCREEN_TIGHT = 7,
    SCREEN_ZRLE = 16,
    SCREEN_DESKTOP_SIZE = -223,
    SCREEN_LAST_RECT = -224,
    SCREEN_CURSOR = -239,
    SCREEN_QEMU_KEYS = -258,
    SCREEN_LED_STATE = -261,
    SCREEN_DESKTOP_NAME = -307,
    SCREEN_EXTENDED_SIZE = -308,
    SCREEN_FENCE = -312,
    SCREEN_CONTINUOUS = -313,
    SCREEN_ALPHA_CURSOR = -314,
    SCREEN_EXTENDED_CLIPBOARD = -1063131698, /* 0xc0a1e5ce */
};

enum {
    SCREEN_SECURITY_NONE = 1,
    SCREEN_SECURITY_VNC = 2,
    SCREEN_CHALLENGE_BYTES = 16,
    SCREEN_MOST_PIXELS = 1 << 26,
    SCREEN_CUT_TEXT_MOST = 4 << 20, /* longer ones are dropped by a relay */
    SCREEN_FENCE_MOST = 64,         /* bytes that come with a fence */
};

/** Messages of a server that change no pixels. */
enum screen_message {
    SCREEN_BELL = 2,
    SCREEN_CUT_TEXT = 3, /* `data`: all behind the type, as it came */
    SCREEN_END_OF_CONTINUOUS = 150,
    SCREEN_FENCE_MESSAGE = 248, /* `data`: flags in 4 bytes, then what is to
                                   come back */
};

/** Who answers and listens. What a callback returns, if negative, ends the
 * connection; each may block. */
struct screen_relay {
    /** It is connected: whoever shuts this socket down ends it. */
    int (*opened)(int fd, void *arg);
    /** The type of security, of those that are offered; -EACCES. */
    int (*choose)(const uint8_t *types, size_t count, void *arg);
    int (*answer)(const uint8_t challenge[SCREEN_CHALLENGE_BYTES],
                  uint8_t answer[SCREEN_CHALLENGE_BYTES], void *arg);
    /** The server is content: 1 if its screen is shared, 0 if others are to be
     * thrown out. */
    int (*shared)(void *arg);
    /** A rectangle that holds no pixels, as it came behind its encoding. */
    int (*pseudo)(int32_t encoding, const struct poise_screen_rect *rect,
                  const void *data, size_t len, void *arg);
    int (*message)(enum screen_message type, const void *data, size_t len,
                   void *arg);
    void *arg;
};

/** As poise_screen_connect, but nothing is asked for. The relay is borrowed. */
int screen_client_create(const char *address,
                         const struct poise_screen_options *options,
                         const struct screen_relay *relay,
                         struct poise_screen_client **out);
/** Its socket, to wait for, to write to, and to shut down. */
int screen_client_fd(const struct poise_screen_client *client);
/** Whether `address` leads to this machine only, as far as it says so. */
bool screen_is_local(const char *address);

/** Names with commas between, as in poise_screen_options: their numbers, at
 * most SCREEN_ENCODINGS, each once. -EINVAL. */
enum { SCREEN_ENCODINGS = 6 };
int screen_encodings_parse(const char *names, int32_t numbers[SCREEN_ENCODINGS],
                           size_t *count);
/** Append the message that asks for encodings. */
int screen_encodings_put(const int32_t *numbers, size_t count,
                         struct poise_buf *out);

#endif
