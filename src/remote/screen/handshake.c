/* The beginning of a connection, until pixels can be asked for. Source: RFC
 * 6143, 7.1 to 7.5. */
#include "internal.h"

#include <openssl/evp.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    VERSION_BYTES = 12,
    KEY_BYTES = 8,
    REASON_MOST = 500,
    NAME_MOST = 1 << 20
};

/* Of the server, in its own words: they may be anything. */
static int refused(struct screen_source *source)
{
    char why[REASON_MOST + 1];
    uint32_t len = screen_u32(source);
    size_t kept = len < REASON_MOST ? len : REASON_MOST;
    screen_read(source, why, kept);
    why[kept] = '\0';
    if (source->error == 0) {
        source->error = poise_error_set(EACCES, "use the screen", NULL,
                                        "the server says: %s", why);
    }
    return source->error;
}

/* ---- VncAuth ------------------------------------------------------------- */

/* DES of one key: three times the same in its triple form, which OpenSSL's
 * usual provider has. Each byte of the key has its bits in reverse. */
static int encrypt(const char *password, const uint8_t *challenge, uint8_t *out)
{
    uint8_t key[3 * KEY_BYTES] = {0};
    for (size_t i = 0; i < KEY_BYTES && password[i]; i++) {
        for (int bit = 0; bit < 8; bit++) {
            key[i] |= (uint8_t)(((uint8_t)password[i] >> bit & 1) << (7 - bit));
        }
    }
    memcpy(key + KEY_BYTES, key, KEY_BYTES);
    memcpy(key + (size_t)2 * KEY_BYTES, key, KEY_BYTES);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int len = 0;
    bool done =
        ctx && EVP_EncryptInit_ex(ctx, EVP_des_ede3_ecb(), NULL, key, NULL) &&
        EVP_CIPHER_CTX_set_padding(ctx, 0) &&
        EVP_EncryptUpdate(ctx, out, &len, challenge, SCREEN_CHALLENGE_BYTES) &&
        len == SCREEN_CHALLENGE_BYTES;
    EVP_CIPHER_CTX_free(ctx);
    return done ? 0
                : poise_error_set(ENOTSUP, "answer the server", NULL,
                                  "OpenSSL has no DES here");
}

static int authenticate(struct screen_source *source, const char *password,
                        const struct screen_relay *relay)
{
    uint8_t challenge[SCREEN_CHALLENGE_BYTES], answer[SCREEN_CHALLENGE_BYTES];
    if (!password && !relay) {
        return poise_error_set(EACCES, "use the screen", NULL,
                               "the server wants a password");
    }
    screen_read(source, challenge, sizeof challenge);
    int code = source->error;
    if (code == 0) {
        code = relay ? relay->answer(challenge, answer, relay->arg)
                     : encrypt(password, challenge, answer);
    }
    return code == 0 ? screen_send(source, answer, sizeof answer) : code;
}

/* ---- versions and security ----------------------------------------------- */

/* 3, 7 or 8 of the versions 3.3, 3.7 and 3.8. */
static int agree_version(struct screen_source *source)
{
    char text[VERSION_BYTES + 1] = "", answer[VERSION_BYTES + 1];
    int digits[6], minor;
    screen_read(source, text, VERSION_BYTES);
    if (source->error != 0) {
        return source->error;
    }
    if (memcmp(text, "RFB ", 4) != 0 || text[7] != '.' || text[11] != '\n') {
        return screen_bad(source, "it is no server of RFB");
    }
    for (int i = 0; i < 6; i++) {
        char digit = text[i < 3 ? 4 + i : 5 + i];
        if (digit < '0' || digit > '9') {
            return screen_bad(source, "it is no server of RFB");
        }
        digits[i] = digit - '0';
    }
    int major = digits[0] * 100 + digits[1] * 10 + digits[2];
    minor = digits[3] * 100 + digits[4] * 10 + digits[5];
    if (major < 3) {
        return screen_bad(source, "its version of RFB is older than 3.3");
    }
    minor = major > 3 || minor >= 8 ? 8 : minor == 7 ? 7 : 3;
    snprintf(answer, sizeof answer, "RFB 003.00%d\n", minor);
    int code = screen_send(source, answer, VERSION_BYTES);
    return code == 0 ? minor : code;
}

/* Of those that are offered, or the error. */
static int pick_security(const uint8_t *types, size_t count,
                         const char *password)
{
    uint8_t chosen = 0;
    for (size_t i = 0; i < count; i++) {
        uint8_t type = types[i];
        bool known =
            type == SCREEN_SECURITY_NONE || type == SCREEN_SECURITY_VNC;
        /* A password that was given is used where it can be. */
        if (known &&
            (chosen == 0 || (type == SCREEN_SECURITY_VNC) == !!password)) {
            chosen = type;
        }
    }
    return chosen != 0
               ? chosen
               : poise_error_set(EACCES, "use the screen", NULL,
                                 "the server offers neither 'no security' nor "
                                 "a password of VNC");
}

/* The type of security that it is to be, or the error. */
static int choose_security(struct screen_source *source, int minor,
                           const char *password,
                           const struct screen_relay *relay)
{
    uint8_t types[UINT8_MAX];
    size_t count = 1;
    if (minor == 3) {
        /* The server has chosen. */
        uint32_t type = screen_u32(source);
        types[0] = type <= UINT8_MAX ? (uint8_t)type : UINT8_MAX;
        count = type != 0;
    } else {
        count = screen_u8(source);
        screen_read(source, types, count);
    }
    if (source->error != 0 || count == 0) {
        return source->error != 0 ? source->error : refused(source);
    }
    int chosen = relay ? relay->choose(types, count, relay->arg)
                       : pick_security(types, count, password);
    uint8_t byte = (uint8_t)chosen;
    int code = chosen > 0 && minor > 3 ? screen_send(source, &byte, 1) : 0;
    return code < 0 ? code : chosen;
}

static int secure(struct screen_source *source, int minor, const char *password,
                  const struct screen_relay *relay)
{
    int type = choose_security(source, minor, password, relay);
    int code = type == SCREEN_SECURITY_VNC
                   ? authenticate(source, password, relay)
               : type < 0 ? type
                          : 0;
    if (code < 0 || (type == SCREEN_SECURITY_NONE && minor < 8)) {
        return code;
    }
    if (screen_u32(source) == 0 || source->error != 0) {
        return source->error;
    }
    return minor == 8 ? refused(source)
                      : poise_error_set(EACCES, "use the screen", NULL,
                                        "the server refuses the password");
}

/* ---- what is asked for --------------------------------------------------- */

/* 32 bits a pixel, 24 of them colours: blue, green, red and nothing. */
static int send_format(struct screen_source *source)
{
    static const uint8_t message[] = {0, 0,   0, 0,   32, 24, 0, 1, 0, 255,
                                      0, 255, 0, 255, 16, 8,  0, 0, 0, 0};
    return screen_send(source, message, sizeof message);
}

int screen_encodings_parse(const char *names, int32_t numbers[SCREEN_ENCODINGS],
                           size_t *count)
{
    static const struct {
        const char *name;
        int32_t number;
    } known[SCREEN_ENCODINGS] = {
        {"raw", SCREEN_RAW},     {"copyrect", SCREEN_COPYRECT},
        {"rre", SCREEN_RRE},     {"hextile", SCREEN_HEXTILE},
        {"tight", SCREEN_TIGHT}, {"zrle", SCREEN_ZRLE}};
    *count = 0;
    for (const char *at = names; *at; at += strspn(at, ",")) {
        size_t len = strcspn(at, ","), i = 0;
        while (i < SCREEN_ENCODINGS && (strlen(known[i].name) != len ||
                                        strncmp(known[i].name, at, len) != 0)) {
            i++;
        }
        if (i == SCREEN_ENCODINGS || *count == SCREEN_ENCODINGS) {
            return poise_error_set(EINVAL, "use encodings", names,
                                   "expected some of raw, copyrect, rre, "
                                   "hextile, tight and zrle, each once");
        }
        numbers[(*count)++] = known[i].number;
        at += len;
    }
    return 0;
}

int screen_read_encodings(const char *names, struct screen_encodings *out)
{
    return screen_encodings_parse(names, out->numbers, &out->count);
}

int screen_encodings_put(const int32_t *numbers, size_t count,
                         struct poise_buf *out)
{
    uint8_t head[] = {2, 0, (uint8_t)(count >> 8), (uint8_t)count};
    poise_buf_append(out, head, sizeof head);
    for (size_t i = 0; i < count; i++) {
        uint32_t number = (uint32_t)numbers[i];
        for (unsigned byte = 0; byte < 4; byte++) {
            poise_buf_putc(out, (char)(number >> (24 - 8 * byte)));
        }
    }
    return out->error;
}

int screen_send_encodings(struct screen_source *source,
                          const struct screen_encodings *encodings)
{
    enum { EXTRA = 3, LEVEL_0 = -256 };
    int32_t numbers[SCREEN_ENCODINGS + EXTRA];
    size_t count = encodings->count;
    struct poise_buf message = {0};
    memcpy(numbers, encodings->numbers, count * sizeof *numbers);
    numbers[count++] = SCREEN_DESKTOP_SIZE;
    numbers[count++] = SCREEN_LAST_RECT;
    if (encodings->level > 0) {
        numbers[count++] = LEVEL_0 + (int32_t)encodings->level;
    }
    int code = screen_encodings_put(numbers, count, &message);
    code = code == 0 ? screen_send(source, message.data, message.len) : code;
    poise_buf_free(&message);
    return code;
}

int screen_handshake(struct screen_source *source,
                     const struct poise_screen_options *options,
                     const struct screen_relay *relay, uint32_t *width,
                     uint32_t *height, char *name, size_t room)
{
    int minor = agree_version(source);
    int code =
        minor < 0 ? minor : secure(source, minor, options->password, relay);
    uint8_t shared = !options->exclusive;
    if (code == 0 && relay) {
        code = relay->shared(relay->arg);
        shared = code > 0;
    }
    code = code >= 0 ? screen_send(source, &shared, 1) : code;
    if (code < 0) {
        return code;
    }
    *width = screen_u16(source);
    *height = screen_u16(source);
    screen_skip(source, 16); /* its own format of pixels */
    uint32_t len = screen_u32(source);
    if (len > NAME_MOST) {
        return screen_bad(source, "the screen's name has no end");
    }
    size_t kept = len < room - 1 ? len : room - 1;
    screen_read(source, name, kept);
    name[kept] = '\0';
    screen_skip(source, len - kept);
    return source->error == 0 ? send_format(source) : source->error;
}
