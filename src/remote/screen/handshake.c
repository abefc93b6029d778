/* The beginning of a connection, until pixels can be asked for. Source: RFC
 * 6143, 7.1 to 7.5. */
#include "internal.h"

#include <openssl/evp.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    VERSION_BYTES = 12,
    SECURITY_NONE = 1,
    SECURITY_VNC = 2,
    CHALLENGE_BYTES = 16,
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
    bool done = ctx &&
                EVP_EncryptInit_ex(ctx, EVP_des_ede3_ecb(), NULL, key, NULL) &&
                EVP_CIPHER_CTX_set_padding(ctx, 0) &&
                EVP_EncryptUpdate(ctx, out, &len, challenge, CHALLENGE_BYTES) &&
                len == CHALLENGE_BYTES;
    EVP_CIPHER_CTX_free(ctx);
    return done ? 0
                : poise_error_set(ENOTSUP, "answer the server", NULL,
                                  "OpenSSL has no DES here");
}

static int authenticate(struct screen_source *source, const char *password)
{
    uint8_t challenge[CHALLENGE_BYTES], answer[CHALLENGE_BYTES];
    if (!password) {
        return poise_error_set(EACCES, "use the screen", NULL,
                               "the server wants a password");
    }
    screen_read(source, challenge, sizeof challenge);
    int code = source->error == 0 ? encrypt(password, challenge, answer)
                                  : source->error;
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

/* The type of security that it is to be, or the error. */
static int choose_security(struct screen_source *source, int minor,
                           const char *password)
{
    if (minor == 3) {
        uint32_t type = screen_u32(source);
        return type == 0 && source->error == 0                 ? refused(source)
               : type == SECURITY_NONE || type == SECURITY_VNC ? (int)type
               : source->error != 0
                   ? source->error
                   : screen_bad(source, "it wants another kind of security");
    }
    uint8_t count = screen_u8(source), chosen = 0;
    if (count == 0) {
        return source->error != 0 ? source->error : refused(source);
    }
    for (uint8_t i = 0; i < count; i++) {
        uint8_t type = screen_u8(source);
        bool known = type == SECURITY_NONE || type == SECURITY_VNC;
        /* A password that was given is used where it can be. */
        if (known && (chosen == 0 || (type == SECURITY_VNC) == !!password)) {
            chosen = type;
        }
    }
    if (source->error != 0) {
        return source->error;
    }
    if (chosen == 0) {
        return poise_error_set(EACCES, "use the screen", NULL,
                               "the server offers neither 'no security' nor "
                               "a password of VNC");
    }
    int code = screen_send(source, &chosen, 1);
    return code == 0 ? chosen : code;
}

static int secure(struct screen_source *source, int minor, const char *password)
{
    int type = choose_security(source, minor, password);
    int code = type == SECURITY_VNC ? authenticate(source, password)
               : type < 0           ? type
                                    : 0;
    if (code < 0 || (type == SECURITY_NONE && minor < 8)) {
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

int screen_read_encodings(const char *names, struct screen_encodings *out)
{
    static const struct {
        const char *name;
        int32_t number;
    } known[SCREEN_ENCODINGS] = {
        {"raw", SCREEN_RAW},     {"copyrect", SCREEN_COPYRECT},
        {"rre", SCREEN_RRE},     {"hextile", SCREEN_HEXTILE},
        {"tight", SCREEN_TIGHT}, {"zrle", SCREEN_ZRLE}};
    out->count = 0;
    for (const char *at = names; *at; at += strspn(at, ",")) {
        size_t len = strcspn(at, ","), i = 0;
        while (i < SCREEN_ENCODINGS && (strlen(known[i].name) != len ||
                                        strncmp(known[i].name, at, len) != 0)) {
            i++;
        }
        if (i == SCREEN_ENCODINGS || out->count == SCREEN_ENCODINGS) {
            return poise_error_set(EINVAL, "use encodings", names,
                                   "expected some of raw, copyrect, rre, "
                                   "hextile, tight and zrle, each once");
        }
        out->numbers[out->count++] = known[i].number;
        at += len;
    }
    return 0;
}

int screen_send_encodings(struct screen_source *source,
                          const struct screen_encodings *encodings)
{
    enum { HEAD = 4, EXTRA = 3, LEVEL_0 = -256 };
    int32_t numbers[SCREEN_ENCODINGS + EXTRA];
    size_t count = encodings->count;
    memcpy(numbers, encodings->numbers, count * sizeof *numbers);
    numbers[count++] = SCREEN_DESKTOP_SIZE;
    numbers[count++] = SCREEN_LAST_RECT;
    if (encodings->level > 0) {
        numbers[count++] = LEVEL_0 + (int32_t)encodings->level;
    }
    uint8_t message[HEAD + sizeof numbers] = {2, 0, 0, (uint8_t)count};
    for (size_t i = 0; i < count; i++) {
        uint32_t number = (uint32_t)numbers[i];
        for (unsigned byte = 0; byte < 4; byte++) {
            message[HEAD + 4 * i + byte] = (uint8_t)(number >> (24 - 8 * byte));
        }
    }
    return screen_send(source, message, HEAD + 4 * count);
}

int screen_handshake(struct screen_source *source,
                     const struct poise_screen_options *options,
                     uint32_t *width, uint32_t *height, char *name, size_t room)
{
    int minor = agree_version(source);
    int code = minor < 0 ? minor : secure(source, minor, options->password);
    uint8_t shared = !options->exclusive;
    code = code == 0 ? screen_send(source, &shared, 1) : code;
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
