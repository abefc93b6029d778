/*
 * How two ends of a link prove to each other that they are of one job: each
 * shows that it has the job's secret, and neither says it.
 *
 *   A to B   FLOW_HELLO    who A is, and a number that A drew
 *   B to A   FLOW_WELCOME  what B is, a number that B drew, and a code that
 *                          only who has the secret could make, of all of it
 *   A to B   FLOW_PROOF    the same of A
 *
 * The codes are HMAC-SHA256 over which side speaks, the hello and the welcome;
 * so none can be used again, on another link or by the other side. Until the
 * other end has proved itself nothing else is sent to it, or taken from it.
 * What comes then is not ciphered, nor is each message proved: who can change
 * packets on their way can change blocks.
 */
#include "link.h"

#include <poise/parts.h>

#include <byteswap.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/evp.h>

static const char magic[8] = "poiflow";

enum { SIDE_CAME = 'B', SIDE_CALLED = 'A' };

/** All that codes are made of. */
struct said {
    char side;
    struct flow_greeting hello;
    struct flow_greeting welcome;
};

struct flow_handshake {
    struct flow_queue out; /**< what of it is to be sent */
    struct flow_greeting hello, welcome;
    bool welcomed; /**< the accepting side: it answered */
};

/** With FLOW_WELCOME and FLOW_PROOF. */
struct proof {
    struct flow_greeting is;
    unsigned char code[FLOW_CODE_BYTES];
};

/* ---- builds ------------------------------------------------------------- */

struct build_search {
    const void *inside;
    uint64_t id;
};

static bool holds(const struct dl_phdr_info *object, const void *at)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        uintptr_t from = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        if (object->dlpi_phdr[i].p_type == PT_LOAD && (uintptr_t)at >= from &&
            (uintptr_t)at - from < object->dlpi_phdr[i].p_memsz) {
            return true;
        }
    }
    return false;
}

/* The linker's note of what the object was built from, where it wrote one. */
static int look_at_object(struct dl_phdr_info *object, size_t size, void *arg)
{
    struct build_search *search = arg;
    (void)size;
    if (!holds(object, search->inside)) {
        return 0;
    }
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const char *at = (const char *)object->dlpi_addr + part->p_vaddr;
        const char *end = at + part->p_memsz;
        while (part->p_type == PT_NOTE &&
               end - at >= (ptrdiff_t)sizeof(ElfW(Nhdr))) {
            const ElfW(Nhdr) *note = (const void *)at;
            const char *what = at + sizeof *note + (note->n_namesz + 3) / 4 * 4;
            if (note->n_type == NT_GNU_BUILD_ID && what < end &&
                note->n_descsz <= (size_t)(end - what)) {
                search->id = poise_hash_bytes(what, note->n_descsz, search->id);
                return 1;
            }
            at = what + (note->n_descsz + 3) / 4 * 4;
        }
    }
    return 1;
}

uint64_t flow_build(void)
{
    static const char version[] = POISE_VERSION;
    struct build_search search = {.inside = magic, .id = 0};
    dl_iterate_phdr(look_at_object, &search);
    return poise_hash_bytes(version, sizeof version, search.id);
}

/* ---- secrets ------------------------------------------------------------ */

int flow_secret_draw(unsigned char secret[FLOW_SECRET_BYTES])
{
    if (!poise_parts[POISE_PART_OPENSSL].is_built) {
        return poise_part_missing(POISE_PART_OPENSSL, "prove nodes to",
                                  "each other");
    }
    return getrandom(secret, FLOW_SECRET_BYTES, 0) == FLOW_SECRET_BYTES
               ? 0
               : poise_error_set(errno, "draw secret of job", NULL, NULL);
}

/* 0, or negative with the error set. */
static int code_make(const struct flow_self *self,
                     const struct flow_handshake *shake, char side,
                     unsigned char out[FLOW_CODE_BYTES])
{
    struct said said;
    size_t len;
    memset(&said, 0, sizeof said); /* with what lies between members */
    said.side = side;
    memcpy(&said.hello, &shake->hello, sizeof said.hello);
    memcpy(&said.welcome, &shake->welcome, sizeof said.welcome);
    return EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, self->secret,
                     sizeof self->secret, (const unsigned char *)&said,
                     sizeof said, out, FLOW_CODE_BYTES, &len)
               ? 0
               : poise_error_set(EPROTO, "prove oneself", NULL,
                                 "the library for it has no HMAC-SHA256");
}

static int greeting_make(const struct flow_self *self,
                         struct flow_greeting *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->magic, magic, sizeof magic);
    out->order = FLOW_ORDER;
    out->node = self->node;
    out->build = self->build;
    out->job = self->job;
    out->turn = self->turn;
    out->at = self->at;
    out->began = self->began;
    return getrandom(out->nonce, sizeof out->nonce, 0) == sizeof out->nonce
               ? 0
               : poise_error_set(errno, "greet node", NULL, NULL);
}

static int shake_say(struct flow_handshake *shake, enum flow_kind kind,
                     const void *data, size_t len)
{
    struct flow_item *item = flow_item_create(kind, data, len);
    if (!item) {
        return -ENOMEM;
    }
    flow_queue_add(&shake->out, item);
    return 0;
}

static int proof_say(struct flow_handshake *shake, const struct flow_self *self,
                     enum flow_kind kind, char side,
                     const struct flow_greeting *is)
{
    struct proof proof;
    memcpy(&proof.is, is, sizeof proof.is);
    int code = code_make(self, shake, side, proof.code);
    return code < 0 ? code : shake_say(shake, kind, &proof, sizeof proof);
}

/* ---- the three messages ------------------------------------------------- */

int flow_link_greet(struct flow_link *link, const struct flow_self *self)
{
    flow_handshake_free(link);
    link->shake = poise_alloc(1, sizeof *link->shake);
    int code = link->shake ? greeting_make(self, &link->shake->hello) : -ENOMEM;
    return code < 0 ? code
                    : shake_say(link->shake, FLOW_HELLO, &link->shake->hello,
                                sizeof link->shake->hello);
}

struct flow_queue *flow_handshake_queue(struct flow_link *link)
{
    return link->shake && link->shake->out.first ? &link->shake->out : NULL;
}

void flow_handshake_free(struct flow_link *link)
{
    if (link->shake) {
        flow_queue_clear(&link->shake->out, NULL);
    }
    free(link->shake);
    link->shake = NULL;
    link->proved = false;
}

size_t flow_handshake_bytes(const struct flow_link *link)
{
    return link->head.kind == FLOW_HELLO && !link->shake
               ? sizeof(struct flow_greeting)
           : link->shake &&
                   link->head.kind ==
                       (link->shake->welcomed ? FLOW_PROOF : FLOW_WELCOME)
               ? sizeof(struct proof)
               : SIZE_MAX;
}

static bool is_right(const struct flow_link *link, const struct flow_self *self,
                     char side, const struct proof *proof)
{
    unsigned char code[FLOW_CODE_BYTES];
    return code_make(self, link->shake, side, code) == 0 &&
           CRYPTO_memcmp(code, proof->code, sizeof code) == 0;
}

static int take_hello(struct flow_link *link, const struct flow_self *self,
                      const struct flow_greeting *hello)
{
    link->shake = poise_alloc(1, sizeof *link->shake);
    if (!link->shake) {
        return -ENOMEM;
    }
    memcpy(&link->shake->hello, hello, sizeof *hello);
    link->shake->welcomed = true;
    if (memcmp(hello->magic, magic, sizeof magic) != 0 ||
        hello->order != FLOW_ORDER) {
        return -EPROTO;
    }
    int code = greeting_make(self, &link->shake->welcome);
    return code < 0 ? code
                    : proof_say(link->shake, self, FLOW_WELCOME, SIDE_CAME,
                                &link->shake->welcome);
}

static int take_welcome(struct flow_link *link, const struct flow_self *self,
                        const struct proof *proof)
{
    memcpy(&link->shake->welcome, &proof->is, sizeof proof->is);
    if (!is_right(link, self, SIDE_CAME, proof)) {
        return -EPROTO;
    }
    link->proved = true;
    link->turn = proof->is.turn;
    return proof_say(link->shake, self, FLOW_PROOF, SIDE_CALLED,
                     &link->shake->hello);
}

int flow_link_shake(struct flow_link *link, const struct flow_self *self)
{
    const void *data = flow_made_data(link->in);
    int code;
    if (!link->shake) {
        code = take_hello(link, self, data);
        return code < 0 ? code : 0;
    }
    if (!link->shake->welcomed) {
        return take_welcome(link, self, data);
    }
    if (!is_right(link, self, SIDE_CALLED, data)) {
        return -EPROTO;
    }
    /* Whoever it is, it has the secret: what it says of itself counts. */
    const struct flow_greeting *is = &link->shake->hello;
    link->proved = true;
    link->at = is->at;
    link->head = (struct flow_head){.kind = FLOW_HELLO,
                                    .place = is->node,
                                    .file = is->began,
                                    .extra = is->build == self->build &&
                                             is->job == self->job};
    return 1;
}
