/*
 * How large the frames of an object's functions are: a frame larger than the
 * guard below a rank's stack could lie beyond it, in the stack of another rank.
 *
 * Two sources, since neither knows all frames. .eh_frame tells by how much the
 * stack pointer moves where the frame's address (CFA) is counted from it. In
 * functions that count from rbp (compiled without optimisation, or with arrays
 * of variable length) it does not, and there the subtraction is looked for
 * among the first instructions. What -fstack-clash-protection makes of a large
 * frame, steps of a page that each touch it, is told from one large step: its
 * CFA is counted from r11 meanwhile. alloca and arrays of variable length leave
 * no trace in either.
 *
 * A frame that is found wrongly makes the guard larger than it need be, and
 * nothing else. Everything that is read is checked to lie inside the file.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

/** Registers as DWARF numbers them. */
enum { FRAME_RSP = 7, FRAME_OTHER = 0 };
/** States that instructions may put aside. Compilers nest them once. */
#define FRAME_NESTED 16
/** Instructions of a function's beginning, in bytes. */
#define FRAME_PROLOGUE ((size_t)96)

/** How a pointer is written in .eh_frame. */
enum {
    FRAME_PTR = 0x00,
    FRAME_UDATA2 = 0x02,
    FRAME_UDATA4 = 0x03,
    FRAME_UDATA8 = 0x04,
    FRAME_SDATA2 = 0x0a,
    FRAME_SDATA4 = 0x0b,
    FRAME_SDATA8 = 0x0c,
    FRAME_PCREL = 0x10,
    FRAME_OMIT = 0xff
};

/** Bytes of a table, and where in memory they would be. */
struct frame_cursor {
    const unsigned char *at, *end;
    uint64_t address;
    bool is_bad;
};

/** What CFA instructions say at one place of a function. */
struct frame_state {
    uint64_t reg, offset;
};

struct frame_cie {
    uint8_t encoding; /**< of addresses of functions */
    bool has_data;    /**< FDEs have a part that is passed over */
    struct frame_cursor instructions;
};

/* ---- reading ------------------------------------------------------------ */

/* `bytes` of it, or NULL and it is bad from now on. */
static const unsigned char *frame_take(struct frame_cursor *from,
                                       uint64_t bytes)
{
    if (from->is_bad || bytes > (uint64_t)(from->end - from->at)) {
        from->is_bad = true;
        return NULL;
    }
    const unsigned char *taken = from->at;
    from->at += bytes;
    from->address += bytes;
    return taken;
}

static uint64_t frame_number(struct frame_cursor *from, unsigned bytes)
{
    const unsigned char *taken = frame_take(from, bytes);
    uint64_t value = 0;
    for (unsigned i = 0; taken != NULL && i < bytes; i++) {
        value |= (uint64_t)taken[i] << (8 * i);
    }
    return value;
}

/* LEB128, signed or not: what does not fit into 64 bits is lost. */
static uint64_t frame_leb(struct frame_cursor *from, bool is_signed)
{
    uint64_t value = 0, byte;
    unsigned shift = 0;
    do {
        byte = frame_number(from, 1);
        value |= shift < 64 ? (byte & 0x7f) << shift : 0;
        shift += 7;
    } while ((byte & 0x80) != 0 && !from->is_bad);
    if (is_signed && shift < 64 && (byte & 0x40) != 0) {
        value |= UINT64_MAX << shift;
    }
    return value;
}

/* A pointer, as far as its encoding is one that compilers use for functions. */
static uint64_t frame_pointer(struct frame_cursor *from, uint8_t encoding)
{
    uint64_t base = (encoding & 0x70) == FRAME_PCREL ? from->address : 0;
    switch (encoding & 0x0f) {
    case FRAME_PTR:
    case FRAME_UDATA8:
    case FRAME_SDATA8:
        return base + frame_number(from, 8);
    case FRAME_UDATA4:
        return base + frame_number(from, 4);
    case FRAME_SDATA4:
        return base + (uint64_t)(int64_t)(int32_t)frame_number(from, 4);
    case FRAME_UDATA2:
        return base + frame_number(from, 2);
    case FRAME_SDATA2:
        return base + (uint64_t)(int64_t)(int16_t)frame_number(from, 2);
    default:
        from->is_bad = true;
        return 0;
    }
}

/* ---- CFA instructions --------------------------------------------------- */

/* The instructions that change neither register nor offset: how many LEB128
 * numbers follow, and whether the last is the length of a block. False for
 * those that are not known. */
static bool frame_pass_over(struct frame_cursor *from, uint8_t op,
                            uint8_t encoding)
{
    static const struct {
        uint8_t op, numbers;
        bool has_block;
    } known[] = {{0x00, 0, false}, {0x05, 2, false}, {0x06, 1, false},
                 {0x07, 1, false}, {0x08, 1, false}, {0x09, 2, false},
                 {0x10, 2, true},  {0x11, 2, false}, {0x14, 2, false},
                 {0x15, 2, false}, {0x16, 2, true},  {0x2d, 0, false},
                 {0x2e, 1, false}, {0x2f, 2, false}};
    if (op >= 0x01 && op <= 0x04) { /* the next place */
        static const uint8_t bytes[] = {0, 0, 1, 2, 4};
        if (op == 0x01) {
            frame_pointer(from, encoding);
        } else {
            frame_take(from, bytes[op]);
        }
        return true;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].op == op) {
            uint64_t last = 0;
            for (unsigned n = 0; n < known[i].numbers; n++) {
                last = frame_leb(from, false);
            }
            if (known[i].has_block) {
                frame_take(from, last);
            }
            return true;
        }
    }
    return false;
}

/* One instruction that says where the frame's address is. False: it is none. */
static bool frame_define(struct frame_cursor *from, uint8_t op,
                         struct frame_state *state)
{
    switch (op) {
    case 0x0c: /* register and offset */
        state->reg = frame_leb(from, false);
        state->offset = frame_leb(from, false);
        return true;
    case 0x0d:
        state->reg = frame_leb(from, false);
        return true;
    case 0x0e:
        state->offset = frame_leb(from, false);
        return true;
    case 0x0f: /* an expression */
        frame_take(from, frame_leb(from, false));
        state->reg = FRAME_OTHER;
        return true;
    default:
        return false;
    }
}

/* Run instructions; the largest step of the stack pointer. */
static uint64_t frame_run(struct frame_cursor from, uint8_t encoding,
                          struct frame_state *state)
{
    struct frame_state kept[FRAME_NESTED];
    size_t nested = 0;
    uint64_t largest = 0;
    while (from.at < from.end && !from.is_bad) {
        struct frame_state before = *state;
        uint8_t op = (uint8_t)frame_number(&from, 1);
        if ((op & 0xc0) != 0) { /* a place, or where a register was saved */
            if ((op & 0xc0) == 0x80) {
                frame_leb(&from, false);
            }
        } else if (op == 0x0a && nested < FRAME_NESTED) {
            kept[nested++] = *state;
        } else if (op == 0x0b && nested > 0) {
            *state = kept[--nested];
        } else if (frame_define(&from, op, state)) {
            if (before.reg == FRAME_RSP && state->reg == FRAME_RSP &&
                state->offset > before.offset &&
                state->offset - before.offset > largest && !from.is_bad) {
                largest = state->offset - before.offset;
            }
        } else if (!frame_pass_over(&from, op, encoding)) {
            break;
        }
    }
    return largest;
}

/* ---- .eh_frame ---------------------------------------------------------- */

/* An entry's CIE, from behind its id to its end. False if nothing can be known
 * of its functions. */
static bool frame_read_cie(struct frame_cursor from, struct frame_cie *out)
{
    *out = (struct frame_cie){.encoding = FRAME_PTR};
    uint8_t version = (uint8_t)frame_number(&from, 1);
    const char *words = (const char *)from.at;
    const char *end = memchr(words, '\0', (size_t)(from.end - from.at));
    if (from.is_bad || end == NULL || (version != 1 && version != 3)) {
        return false;
    }
    frame_take(&from, (uint64_t)(end - words) + 1);
    frame_leb(&from, false); /* units of places and of offsets */
    frame_leb(&from, true);
    if (version == 1) {
        frame_number(&from, 1); /* the return address */
    } else {
        frame_leb(&from, false);
    }
    if (words[0] != 'z') {
        out->instructions = from;
        return words[0] == '\0' && !from.is_bad;
    }
    out->has_data = true;
    uint64_t bytes = frame_leb(&from, false);
    struct frame_cursor data = from;
    if (frame_take(&from, bytes) == NULL) {
        return false;
    }
    data.end = from.at;
    for (const char *word = words + 1; *word != '\0'; word++) {
        if (*word == 'R') {
            out->encoding = (uint8_t)frame_number(&data, 1);
        } else if (*word == 'P') {
            uint8_t encoding = (uint8_t)frame_number(&data, 1);
            frame_pointer(&data, encoding & 0x0f);
        } else if (*word == 'L') {
            frame_number(&data, 1);
        } else if (*word != 'S' && *word != 'B') {
            break;
        }
    }
    out->instructions = from;
    return !data.is_bad && out->encoding != FRAME_OMIT;
}

/* `sub $N, %rsp` and `add $-N, %rsp` among a function's first instructions:
 * the largest N. */
static uint64_t frame_search(const struct load_image *image, uint64_t function,
                             uint64_t bytes)
{
    size_t len = bytes < FRAME_PROLOGUE ? (size_t)bytes : FRAME_PROLOGUE;
    const unsigned char *code = load_image_at(image, function, len);
    uint64_t largest = 0;
    for (size_t i = 0; code != NULL && i + 7 <= len; i++) {
        if (code[i] != 0x48 || code[i + 1] != 0x81 ||
            (code[i + 2] != 0xec && code[i + 2] != 0xc4)) {
            continue;
        }
        int32_t number;
        memcpy(&number, code + i + 3, sizeof number);
        int64_t step = code[i + 2] == 0xec ? number : -(int64_t)number;
        if (step > 0 && (uint64_t)step > largest) {
            largest = (uint64_t)step;
        }
    }
    return largest;
}

/* An FDE, from behind its id to its end. */
static void frame_read_fde(const struct load_image *image,
                           const struct frame_cie *cie,
                           struct frame_cursor from, struct load_frame *out)
{
    struct frame_state state = {.reg = FRAME_OTHER};
    uint64_t function = frame_pointer(&from, cie->encoding);
    uint64_t bytes = frame_pointer(&from, cie->encoding & 0x0f);
    if (cie->has_data) {
        frame_take(&from, frame_leb(&from, false));
    }
    if (from.is_bad) {
        return;
    }
    frame_run(cie->instructions, cie->encoding, &state);
    uint64_t step = frame_run(from, cie->encoding, &state);
    uint64_t found = frame_search(image, function, bytes);
    step = found > step ? found : step;
    if (step > out->bytes) {
        *out = (struct load_frame){
            .bytes = step, .function = function, .image = image};
    }
}

/* .eh_frame and what follows it in its segment, by the header that says where
 * it is. */
static struct frame_cursor frame_table(const struct load_image *image)
{
    struct frame_cursor none = {.is_bad = true};
    for (int i = 0; i < image->segment_count; i++) {
        const Elf64_Phdr *segment = &image->segments[i];
        if (segment->p_type != PT_GNU_EH_FRAME) {
            continue;
        }
        const unsigned char *head =
            load_image_at(image, segment->p_vaddr, segment->p_filesz);
        struct frame_cursor from = {.at = head,
                                    .end =
                                        head ? head + segment->p_filesz : NULL,
                                    .address = segment->p_vaddr,
                                    .is_bad = head == NULL};
        const unsigned char *encodings = frame_take(&from, 4);
        uint64_t at = encodings != NULL && encodings[0] == 1
                          ? frame_pointer(&from, encodings[1])
                          : 0;
        size_t bytes = load_image_rest(image, at);
        const unsigned char *table = load_image_at(image, at, bytes);
        return from.is_bad || table == NULL
                   ? none
                   : (struct frame_cursor){
                         .at = table, .end = table + bytes, .address = at};
    }
    return none;
}

/* One entry's bytes behind its length; false at the end of the table. */
static bool frame_next(struct frame_cursor *table, struct frame_cursor *out)
{
    uint64_t bytes = frame_number(table, 4);
    if (bytes == UINT32_MAX) {
        bytes = frame_number(table, 8);
    }
    *out = *table;
    if (bytes == 0 || frame_take(table, bytes) == NULL) {
        return false;
    }
    out->end = table->at;
    return true;
}

void load_image_frame(const struct load_image *image, struct load_frame *out)
{
    struct frame_cursor table = frame_table(image), entry;
    const unsigned char *first = table.at, *known = NULL;
    struct frame_cie cie = {0};
    bool is_known = false;
    while (!table.is_bad && frame_next(&table, &entry)) {
        const unsigned char *place = entry.at;
        uint64_t back = frame_number(&entry, 4);
        if (back == 0 || entry.is_bad || back > (uint64_t)(place - first)) {
            continue; /* a CIE, read when an FDE names it */
        }
        if (place - back != known) {
            struct frame_cursor at = table, from;
            known = place - back;
            at.at = known;
            at.address = entry.address - 4 - back;
            is_known = frame_next(&at, &from) && frame_number(&from, 4) == 0 &&
                       !from.is_bad && frame_read_cie(from, &cie);
        }
        if (is_known) {
            frame_read_fde(image, &cie, entry, out);
        }
    }
}
