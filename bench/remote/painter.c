/*
 * Draws a session for bench/remote/screens, by a seed: painter KIND SEED STEPS
 * MILLISECONDS [WIDTHxHEIGHT]. Each kind is what an application of its sort
 * does to a screen; what it draws and what is done to it come from the seed.
 *
 *     cc -O2 painter.c $(pkg-config --cflags --libs xft x11) -lm
 */
#include <X11/Xft/Xft.h>
#include <X11/Xlib.h>
#include <X11/Xutil.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static Display *dpy;
static Window win;
static GC gc;
static XftDraw *xft;
static XftFont *mono, *serif, *small;
static XFontStruct *core;
static int width = 1280, height = 1024;
static uint64_t rng;
static const char *what_it_was = "step"; /* scroll, page, ... */

static uint32_t rnd(uint32_t n)
{
    rng += 0x9e3779b97f4a7c15u;
    uint64_t x = rng;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((x ^ x >> 31) >> 32) % n;
}
static double uniform(void)
{
    return rnd(1u << 30) / (double)(1u << 30);
}
static double gauss(void)
{
    return sqrt(-2 * log(uniform() + 1e-12)) * cos(2 * M_PI * uniform());
}
/* The same for the same numbers, whenever it is asked. */
static uint32_t at_random(uint32_t a, uint32_t b, uint32_t c)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u ^ b * 0xc2b2ae3d27d4eb4fu ^
                 c * 0x165667b19e3779f9u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(x >> 33);
}

static void fill(int x, int y, int w, int h, unsigned long colour)
{
    XSetForeground(dpy, gc, colour);
    XFillRectangle(dpy, win, gc, x, y, (unsigned)w, (unsigned)h);
}
static void text(XftFont *font, int x, int y, unsigned colour, const char *s)
{
    XRenderColor rgb = {(unsigned short)((colour >> 16 & 255) * 257),
                        (unsigned short)((colour >> 8 & 255) * 257),
                        (unsigned short)((colour & 255) * 257), 0xffff};
    XftColor c;
    XftColorAllocValue(dpy, DefaultVisual(dpy, 0), DefaultColormap(dpy, 0),
                       &rgb, &c);
    XftDrawStringUtf8(xft, &c, font, x, y, (const FcChar8 *)s, (int)strlen(s));
}
static void plain(int x, int y, unsigned long colour, const char *s)
{
    XSetForeground(dpy, gc, colour);
    XDrawString(dpy, win, gc, x, y, s, (int)strlen(s));
}
static void put(uint32_t *pixels, int x, int y, int w, int h)
{
    XImage *image =
        XCreateImage(dpy, DefaultVisual(dpy, 0), 24, ZPixmap, 0, (char *)pixels,
                     (unsigned)w, (unsigned)h, 32, w * 4);
    XPutImage(dpy, win, gc, image, 0, 0, x, y, (unsigned)w, (unsigned)h);
    image->data = NULL;
    XDestroyImage(image);
}

/* A word, always the same for the same number; small numbers are frequent. */
static const char *word(uint32_t n)
{
    static const char *const syllables[] = {
        "ta", "re", "ion", "gen", "ex", "pro", "mi", "al", "con", "ter", "en",
        "is", "or", "at",  "lo",  "ma", "de",  "st", "ch", "ve",  "in",  "se"};
    static char out[8][40];
    static int turn;
    char *s = out[turn++ & 7];
    *s = 0;
    for (uint32_t i = 0, k = 1 + at_random(n, 1, 2) % 4; i < k; i++) {
        strcat(s, syllables[at_random(n, i, 7) % 22]);
    }
    return s;
}
static uint32_t common_word(uint32_t a, uint32_t b)
{
    double u = (at_random(a, b, 99) & 0xffff) / 65536.0;
    return (uint32_t)(pow(u, 3) * 3000);
}

/* ---- a scrolling heat map of genes, as TreeView shows it ------------------
 */

enum { GENES = 6000 };
static struct {
    int cell_w, cell_h, arrays, across, down, x, y; /* offsets in pixels */
    uint8_t *level; /* GENES x arrays: -255..255 around 128 */
    uint32_t seed;
} map;

static uint32_t red_green(uint8_t level)
{
    return level >= 128 ? (uint32_t)(level - 128) * 2 << 16
                        : (uint32_t)(128 - level) * 255 / 128 << 8;
}
static void map_make(uint32_t seed)
{
    static const int ws[] = {6, 8, 12, 1}, hs[] = {10, 12, 14, 3};
    map.seed = seed;
    int zoom = (int)rnd(8); /* one in eight is not much larger than its data */
    map.cell_w = ws[zoom ? rnd(3) : 3];
    map.cell_h = hs[zoom ? rnd(3) : 3];
    map.across = 700;
    map.down = height - 124;
    map.arrays = map.across / map.cell_w + 60;
    map.level = malloc((size_t)GENES * map.arrays);
    double *centre = malloc(sizeof *centre * map.arrays);
    for (int g = 0; g < GENES; g++) {
        if (g % 40 == 0 || rnd(25) == 0) { /* a cluster of alike genes */
            for (int a = 0; a < map.arrays; a++) {
                centre[a] = gauss() * 45;
            }
        }
        for (int a = 0; a < map.arrays; a++) {
            double v = 128 + centre[a] + gauss() * 18;
            map.level[g * map.arrays + a] = (uint8_t)(v < 1     ? 1
                                                      : v > 255 ? 255
                                                                : v);
        }
    }
    free(centre);
}
static void map_draw(bool whole)
{
    static uint32_t pixels[1400 * 2400];
    int w = map.across, h = map.down;
    for (int y = 0; y < h; y++) {
        int g = (map.y + y) / map.cell_h;
        for (int x = 0; x < w; x++) {
            int a = (map.x + x) / map.cell_w;
            pixels[y * w + x] = red_green(map.level[g * map.arrays + a]);
        }
    }
    put(pixels, 280, 80, w, h);
    /* The overview: all genes, and a frame around those that are seen. */
    int ow = 200, oh = h;
    if (whole || true) {
        for (int y = 0; y < oh; y++) {
            int g = (int)((int64_t)y * GENES / oh);
            for (int x = 0; x < ow; x++) {
                pixels[y * ow + x] =
                    red_green(map.level[g * map.arrays + x * map.arrays / ow]);
            }
        }
        put(pixels, 40, 80, ow, oh);
        XSetForeground(dpy, gc, 0xffff00);
        XDrawRectangle(dpy, win, gc, 40,
                       80 + (int)((int64_t)map.y * oh / map.cell_h / GENES),
                       (unsigned)ow,
                       (unsigned)(h * oh / map.cell_h / GENES) + 1);
    }
    int lx = 280 + w + 10;
    fill(lx, 80, 240, h, 0xffffff);
    XRectangle clip = {(short)lx, 80, 240, (unsigned short)h};
    XSetClipRectangles(dpy, gc, 0, 0, &clip, 1, Unsorted);
    for (int g = map.y / map.cell_h;
         map.cell_h >= 8 && g <= (map.y + h) / map.cell_h && g < GENES; g++) {
        char label[80];
        snprintf(label, sizeof label, "Y%c%c%03uW %s",
                 'A' + (int)(at_random(map.seed, (uint32_t)g, 1) % 16),
                 "LR"[at_random(map.seed, (uint32_t)g, 2) % 2],
                 at_random(map.seed, (uint32_t)g, 3) % 1000,
                 word(common_word((uint32_t)g, 5)));
        plain(lx + 4, 80 + (g + 1) * map.cell_h - map.y - 2, 0, label);
    }
    XSetClipMask(dpy, gc, None);
}
static void map_goto(int x, int y)
{
    int xs = map.arrays * map.cell_w - map.across;
    int ys = GENES * map.cell_h - map.down;
    map.x = x < 0 ? 0 : x > xs ? xs : x;
    map.y = y < 0 ? 0 : y > ys ? ys : y;
}
static void heatmap(int step)
{
    static int been[64][2], places, direction = 1;
    if (step == 0) {
        map_make(rnd(1u << 30));
        fill(0, 0, width, height, 0xd9d9d9);
        text(serif, 40, 40, 0, "Expression");
        map_goto(0, 3000);
        map_draw(true);
        return;
    }
    if (step % 40 == 0) {
        direction = -direction;
    }
    uint32_t what = rnd(100);
    what_it_was = "scroll";
    if (what < 62) {
        map_goto(map.x, map.y + 30 * direction);
    } else if (what < 72) {
        what_it_was = "sideways";
        map_goto(map.x + (rnd(2) ? 24 : -24), map.y);
    } else if (what < 80) {
        what_it_was = "page";
        map_goto(map.x, map.y + direction * (map.down - 50));
    } else if (what < 88) {
        map_goto(map.x, map.y + direction * (1 + (int)rnd(59)));
    } else if (what < 98 && places > 0) {
        what_it_was = "revisit";
        int p = (int)rnd((uint32_t)(places < 64 ? places : 64));
        map_goto(been[p][0], been[p][1]);
    } else {
        what_it_was = "jump";
        map_goto((int)rnd(300), (int)rnd(GENES * (uint32_t)map.cell_h));
    }
    if (rnd(3) == 0) {
        been[places & 63][0] = map.x;
        been[places++ & 63][1] = map.y;
    }
    map_draw(false);
}

/* ---- a viewer of a source text, which moves what it keeps -----------------
 */

static struct {
    int top, lines;
    uint32_t seed;
    bool smooth;
} doc;

static void line_of(int n, char *out, size_t room)
{
    uint32_t h = at_random(doc.seed, (uint32_t)n, 0);
    int indent = 0, kind = (int)(h % 10);
    for (int i = n - 6; i <= n; i++) {
        indent += at_random(doc.seed, (uint32_t)i, 4) % 3 == 0;
    }
    *out = 0;
    if (kind == 0) {
        return;
    }
    size_t at = (size_t)snprintf(out, room, "%6d  %*s", n + 1, indent * 4, "");
    for (uint32_t i = 0, k = 1 + h / 16 % 7; i < k && at + 50 < room; i++) {
        static const char *const joins[] = {" = ", "(",   ", ", ");",   " ",
                                            "->",  " + ", " {", "[i] ", "_"};
        at += (size_t)snprintf(
            out + at, room - at, "%s%s",
            word(common_word((uint32_t)n, i + doc.seed)),
            joins[at_random(doc.seed, (uint32_t)n, i + 50) % 10]);
    }
}
static void draw_lines(int from, int to)
{
    char line[300];
    for (int i = from; i < to; i++) {
        line_of(doc.top + i, line, sizeof line);
        fill(0, i * 13, 1000, 13, 0xffffff);
        if (doc.smooth) {
            text(mono, 4, i * 13 + 10,
                 at_random(doc.seed, (uint32_t)(doc.top + i), 9) % 5 ? 0x202020
                                                                     : 0x006000,
                 line);
        } else {
            plain(4, i * 13 + 10, 0, line);
        }
    }
}
static void reader(int step, bool smooth)
{
    if (step == 0) {
        doc.seed = rnd(1u << 30);
        doc.smooth = smooth;
        doc.lines = height / 13;
        doc.top = 1000;
        fill(0, 0, width, height, 0xc0c0c0);
        draw_lines(0, doc.lines);
        return;
    }
    uint32_t what = rnd(100);
    int by = what < 70   ? 3
             : what < 80 ? -3
             : what < 88 ? 1
             : what < 94 ? doc.lines - 2
             : what < 97 ? 2 - doc.lines
                         : (int)rnd(4000) - 2000;
    what_it_was = abs(by) <= 3               ? "scroll"
                  : abs(by) == doc.lines - 2 ? "page"
                                             : "jump";
    if (doc.top + by < 0) {
        by = -doc.top;
    }
    doc.top += by;
    int keep = doc.lines - abs(by);
    if (keep <= 0) {
        draw_lines(0, doc.lines);
    } else if (by > 0) {
        XCopyArea(dpy, win, win, gc, 0, by * 13, 1000, (unsigned)keep * 13, 0,
                  0);
        draw_lines(keep, doc.lines);
    } else if (by < 0) {
        XCopyArea(dpy, win, win, gc, 0, 0, 1000, (unsigned)keep * 13, 0,
                  -by * 13);
        draw_lines(0, -by);
    }
}

/* ---- a plot that is zoomed ------------------------------------------------
 */

static void plot(int step)
{
    static double cx = 0.5, cy = 0, scale = 1;
    static double phase[6];
    static double px[3000], py[3000];
    if (step == 0) {
        for (int i = 0; i < 6; i++) {
            phase[i] = uniform() * 20;
        }
        for (int i = 0; i < 3000; i++) {
            px[i] = uniform();
            py[i] = gauss() * 0.3;
        }
    } else {
        uint32_t what = rnd(10);
        scale *= what < 4 ? 1.15 : what < 7 ? 1 / 1.15 : 1;
        scale = scale < 1 ? 1 : scale > 60 ? 60 : scale;
        cx += what >= 7 ? (uniform() - 0.5) * 0.2 / scale : 0;
        cy += what >= 9 ? (uniform() - 0.5) * 0.2 / scale : 0;
    }
    int x0 = 90, y0 = 40, w = 1000, h = height - 140;
    fill(0, 0, width, height, 0xffffff);
    XSetForeground(dpy, gc, 0xdddddd);
    for (int i = 0; i <= 10; i++) {
        char label[30];
        XDrawLine(dpy, win, gc, x0 + i * w / 10, y0, x0 + i * w / 10, y0 + h);
        XDrawLine(dpy, win, gc, x0, y0 + i * h / 10, x0 + w, y0 + i * h / 10);
        snprintf(label, sizeof label, "%.4f", cx + (i / 10.0 - 0.5) / scale);
        text(small, x0 + i * w / 10 - 20, y0 + h + 20, 0, label);
        snprintf(label, sizeof label, "%.4f",
                 cy - 2 * (i / 10.0 - 0.5) / scale);
        text(small, 20, y0 + i * h / 10 + 5, 0, label);
        XSetForeground(dpy, gc, 0xdddddd);
    }
    XRectangle clip = {(short)x0, (short)y0, (unsigned short)w,
                       (unsigned short)h};
    XSetClipRectangles(dpy, gc, 0, 0, &clip, 1, Unsorted);
    static const unsigned long colours[] = {0x1f77b4, 0xff7f0e, 0x2ca02c};
    for (int c = 0; c < 3; c++) {
        XPoint points[1001];
        for (int i = 0; i <= w; i++) {
            double x = cx + ((double)i / w - 0.5) / scale;
            double y = sin(x * 9 + phase[c]) * 0.4 +
                       0.2 * sin(x * 60 + phase[c + 3]) +
                       0.05 * sin(x * 400 + phase[c]);
            double v = h / 2.0 - (y - cy) * scale * h / 2;
            points[i] =
                (XPoint){(short)(x0 + i), (short)(y0 + (v < -9999  ? -9999
                                                        : v > 9999 ? 9999
                                                                   : v))};
        }
        XSetForeground(dpy, gc, colours[c]);
        XSetLineAttributes(dpy, gc, 2, LineSolid, CapRound, JoinRound);
        XDrawLines(dpy, win, gc, points, w + 1, CoordModeOrigin);
        XSetLineAttributes(dpy, gc, 1, LineSolid, CapButt, JoinMiter);
    }
    XSetForeground(dpy, gc, 0x800080);
    for (int i = 0; i < 3000; i++) {
        double x = x0 + w * (0.5 + (px[i] - cx) * scale);
        double y = y0 + h / 2.0 - (py[i] - cy) * scale * h / 2;
        if (x > 0 && x < 2000 && y > 0 && y < 2000) {
            XFillRectangle(dpy, win, gc, (int)x, (int)y, 3, 3);
        }
    }
    XSetClipMask(dpy, gc, None);
}

/* ---- an office: windows, menus, typing, a table ---------------------------
 */

enum { WINDOWS = 4 };
static struct {
    int x, y, w, h;
    uint32_t seed, typed;
} windows[WINDOWS];

static void draw_window(int i)
{
    int x = windows[i].x, y = windows[i].y, w = windows[i].w, h = windows[i].h;
    fill(x, y, w, h, 0xffffff);
    for (int k = 0; k < 24; k++) {
        fill(x, y + k, w, 1, 0x3060a0 + (unsigned long)k * 0x020202);
    }
    text(small, x + 8, y + 17, 0xffffff, word(windows[i].seed));
    fill(x, y + 24, w, 22, 0xe8e8e8);
    for (int k = 0; k < 6; k++) {
        text(small, x + 10 + k * 70, y + 40, 0, word(windows[i].seed + 9 + k));
    }
    XSetForeground(dpy, gc, 0x606060);
    XDrawRectangle(dpy, win, gc, x, y, (unsigned)w - 1, (unsigned)h - 1);
    if (i == 0) { /* a table of numbers */
        for (int r = 0; r * 18 + 70 < h; r++) {
            for (int c = 0; c * 80 + 80 < w; c++) {
                char cell[20];
                XSetForeground(dpy, gc, 0xd0d0d0);
                XDrawRectangle(dpy, win, gc, x + c * 80, y + 46 + r * 18, 80,
                               18);
                snprintf(cell, sizeof cell, "%.2f",
                         at_random(windows[i].seed, (uint32_t)r * 100 + c, 5) %
                             100000 / 100.0);
                text(small, x + c * 80 + 10, y + 60 + r * 18, 0, cell);
            }
        }
        return;
    }
    uint32_t n = 0; /* a letter */
    for (int row = 0; row * 19 + 90 < h; row++) {
        int at = x + 20;
        while (at < x + w - 90 && n < windows[i].typed) {
            XGlyphInfo size;
            const char *s = word(common_word(windows[i].seed, n));
            text(serif, at, y + 76 + row * 19, 0, s);
            XftTextExtentsUtf8(dpy, serif, (const FcChar8 *)s, (int)strlen(s),
                               &size);
            at += size.xOff + 6;
            n++;
        }
    }
}
static void office(int step)
{
    if (step == 0) {
        fill(0, 0, width, height, 0x2e5c55);
        for (int i = 0; i < WINDOWS; i++) {
            windows[i].w = 500 + (int)rnd(300);
            windows[i].h = 400 + (int)rnd(300);
            windows[i].x = (int)rnd((uint32_t)(width - windows[i].w));
            windows[i].y = (int)rnd((uint32_t)(height - windows[i].h));
            windows[i].seed = rnd(1u << 20);
            windows[i].typed = 100 + rnd(200);
            draw_window(i);
        }
        return;
    }
    uint32_t what = rnd(100);
    if (what < 60) { /* type a word */
        windows[WINDOWS - 1].typed++;
        draw_window(WINDOWS - 1);
    } else if (what < 70) { /* a menu opens or closes */
        if (what & 1) {
            int x = windows[WINDOWS - 1].x + 10,
                y = windows[WINDOWS - 1].y + 46;
            fill(x, y, 180, 240, 0xf4f4f4);
            for (int k = 0; k < 12; k++) {
                text(small, x + 10, y + 15 + 20 * k, 0, word(what * 20 + k));
            }
        } else {
            draw_window(WINDOWS - 1);
        }
    } else if (what < 85) { /* raise another */
        int i = (int)rnd(WINDOWS - 1);
        typeof(windows[0]) top = windows[i];
        if (i != 0) { /* the table stays the one that is drawn as such */
            memmove(&windows[i], &windows[i + 1],
                    sizeof top * (size_t)(WINDOWS - 1 - i));
            windows[WINDOWS - 1] = top;
        }
        draw_window(i == 0 ? 0 : WINDOWS - 1);
    } else { /* move the top one */
        int i = WINDOWS - 1;
        fill(windows[i].x, windows[i].y, windows[i].w, windows[i].h, 0x2e5c55);
        windows[i].x = (int)rnd((uint32_t)(width - windows[i].w));
        windows[i].y = (int)rnd((uint32_t)(height - windows[i].h));
        for (int k = 0; k < WINDOWS; k++) {
            draw_window(k);
        }
    }
}

/* ---- a map, dragged in both directions and zoomed; a picture from above ---
 */

static double noise(double x, double y, uint32_t seed)
{
    int xi = (int)floor(x), yi = (int)floor(y);
    double u = x - xi, v = y - yi;
    u = u * u * (3 - 2 * u);
    v = v * v * (3 - 2 * v);
    double c[4];
    for (int i = 0; i < 4; i++) {
        c[i] = (at_random((uint32_t)(xi + (i & 1)), (uint32_t)(yi + (i >> 1)),
                          seed) &
                0xffff) /
               65535.0;
    }
    return (c[0] * (1 - u) + c[1] * u) * (1 - v) +
           (c[2] * (1 - u) + c[3] * u) * v;
}
static void ground(int step, bool photo)
{
    static uint32_t pixels[4096 * 2400];
    static double x, y, scale;
    static uint32_t seed;
    if (step == 0) {
        seed = rnd(1u << 20);
        x = y = 5000;
        scale = 1;
        fill(0, 0, width, height, 0xf0f0f0);
    } else if (rnd(12) == 0) {
        scale = scale > 1 ? 1 : 2;
    } else {
        x += (int)rnd(120) - 60;
        y += (int)rnd(90) - 45;
    }
    int w = width - 180, h = height - 124;
    for (int j = 0; j < h; j++) {
        for (int i = 0; i < w; i++) {
            double a = x + i / scale, b = y + j / scale;
            double e = noise(a / 200, b / 200, seed) * 0.65 +
                       noise(a / 50, b / 50, seed + 1) * 0.25 +
                       noise(a / 11, b / 11, seed + 2) * 0.1;
            uint32_t c;
            if (photo) {
                double s = noise(a, b, seed + 3) * 40;
                int r = (int)(e * 170 + s), g = (int)(e * 150 + 30 + s),
                    bl = (int)(90 * (1 - e) + s);
                c = (uint32_t)((r & 255) << 16 | (g & 255) << 8 | (bl & 255));
            } else {
                int band = (int)(e * 24);
                double lane = fabs(noise(a / 90, b / 90, seed + 9) - 0.5);
                c = lane < 0.012 ? 0xffd060
                    : e < 0.42   ? 0xa8c8e8
                    : band % 2   ? 0xcfe8b8
                                 : 0xe4efd4;
            }
            pixels[j * w + i] = c;
        }
    }
    put(pixels, 90, 62, w, h);
    for (int k = 0; k < 60 && !photo; k++) {
        double a = 4000 + at_random(seed, (uint32_t)k, 1) % 3000;
        double b = 4300 + at_random(seed, (uint32_t)k, 2) % 2000;
        int px = (int)((a - x) * scale), py = (int)((b - y) * scale);
        if (px > 0 && px < w - 100 && py > 20 && py < h - 10) {
            text(small, 90 + px, 62 + py, 0x303030, word((uint32_t)k + seed));
        }
    }
}

/* ---- a browser of papers: smooth text and figures -------------------------
 */

static void papers(int step)
{
    static int top;
    static uint32_t seed;
    if (step == 0) {
        seed = rnd(1u << 20);
        top = 0;
    } else {
        uint32_t what = rnd(100);
        top += what < 60   ? 57
               : what < 75 ? -57
               : what < 90 ? height - 200
                           : -(height - 200);
        if (rnd(40) == 0) {
            seed += 77;
            top = 0;
        }
        top = top < 0 ? 0 : top;
    }
    fill(0, 0, width, 70, 0xe0e0e8);
    text(small, 20, 40, 0, word(seed));
    fill(0, 70, width, height - 70, 0xffffff);
    Region clip = XCreateRegion();
    XRectangle view = {0, 70, (unsigned short)width,
                       (unsigned short)(height - 70)};
    XUnionRectWithRegion(&view, clip, clip);
    XftDrawSetClip(xft, clip);
    for (int line = top / 19 - 1; line < (top + height) / 19 + 1; line++) {
        int y = 70 + line * 19 - top, at = 220, n = 0;
        if (line < 0) {
            continue;
        }
        if (line / 14 % 4 == 3) { /* a figure */
            if (line % 14 == 0) {
                static uint32_t figure[640 * 240];
                uint32_t s = seed + (uint32_t)line;
                for (int j = 0; j < 240; j++) {
                    for (int i = 0; i < 640; i++) {
                        int v = (int)(255 * noise(i / 40.0, j / 40.0, s));
                        figure[j * 640 + i] =
                            (uint32_t)v << 16 | (uint32_t)(255 - v) << 8 | 0x60;
                    }
                }
                if (y >= 70) {
                    put(figure, 320, y, 640, 240);
                }
            }
            continue;
        }
        while (at < 1000 && line % 9 != 8) {
            XGlyphInfo size;
            const char *s =
                word(common_word(seed + (uint32_t)line, (uint32_t)n++));
            text(serif, at, y + 14, 0x101010, s);
            XftTextExtentsUtf8(dpy, serif, (const FcChar8 *)s, (int)strlen(s),
                               &size);
            at += size.xOff + 5;
        }
    }
    XftDrawSetClip(xft, NULL);
    XDestroyRegion(clip);
}

/* ---- a video in a corner, and typing beside it ----------------------------
 */

static void video(int step)
{
    static uint32_t pixels[320 * 240];
    static uint32_t seed;
    if (step == 0) {
        seed = rnd(1u << 20);
        doc.seed = seed;
        fill(0, 0, width, height, 0x808890);
    }
    for (int j = 0; j < 240; j++) {
        for (int i = 0; i < 320; i++) {
            double t = step * 0.8;
            double v =
                noise(i / 30.0 + t * 0.1, j / 30.0, seed) * 150 +
                noise(i / 7.0 - t * 0.3, j / 9.0 + t * 0.1, seed + 1) * 60 +
                at_random((uint32_t)step, (uint32_t)(j * 320 + i), 3) % 9;
            int c = (int)v;
            pixels[j * 320 + i] = (uint32_t)(c << 16 | c << 8 | (c / 2 + 60));
        }
    }
    put(pixels, width - 340, height - 260, 320, 240);
    if (step % 5 == 0) {
        char line[300];
        line_of(step / 5, line, sizeof line);
        plain(20, 40 + step / 5 % 70 * 13, 0, line);
    }
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: painter KIND SEED STEPS MILLISECONDS [WxH]\n");
        return 2;
    }
    if (argc > 5) {
        sscanf(argv[5], "%dx%d", &width, &height);
    }
    rng = strtoull(argv[2], NULL, 10) * 7919 + 1;
    int steps = atoi(argv[3]), ms = atoi(argv[4]);
    dpy = XOpenDisplay(NULL);
    if (!dpy) {
        fprintf(stderr, "painter: no display\n");
        return 3;
    }
    win = XCreateSimpleWindow(dpy, DefaultRootWindow(dpy), 0, 0,
                              (unsigned)width, (unsigned)height, 0, 0, 0);
    XSelectInput(dpy, win, ExposureMask);
    XMapWindow(dpy, win);
    XEvent event;
    XWindowEvent(dpy, win, ExposureMask, &event);
    gc = XCreateGC(dpy, win, 0, NULL);
    XSetGraphicsExposures(dpy, gc, False);
    xft =
        XftDrawCreate(dpy, win, DefaultVisual(dpy, 0), DefaultColormap(dpy, 0));
    mono = XftFontOpenName(dpy, 0, "DejaVu Sans Mono:pixelsize=11");
    serif = XftFontOpenName(dpy, 0, "DejaVu Serif:pixelsize=14");
    small = XftFontOpenName(dpy, 0, "DejaVu Sans:pixelsize=12");
    core = XLoadQueryFont(dpy, "6x13");
    if (core) {
        XSetFont(dpy, gc, core->fid);
    }
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int step = 0; step < steps; step++) {
        struct timespec begun, now;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        const char *kind = argv[1];
        if (!strcmp(kind, "heatmap")) {
            heatmap(step);
        } else if (!strcmp(kind, "text") || !strcmp(kind, "smooth")) {
            reader(step, *kind == 's');
        } else if (!strcmp(kind, "plot")) {
            plot(step);
        } else if (!strcmp(kind, "office")) {
            office(step);
        } else if (!strcmp(kind, "map") || !strcmp(kind, "satellite")) {
            ground(step, *kind == 's');
        } else if (!strcmp(kind, "papers")) {
            papers(step);
        } else if (!strcmp(kind, "video")) {
            video(step);
        } else {
            fprintf(stderr, "painter: no kind %s\n", kind);
            return 2;
        }
        XSync(dpy, False);
        clock_gettime(CLOCK_MONOTONIC, &now);
        printf("%ld %s\n",
               (begun.tv_sec - start.tv_sec) * 1000 +
                   (begun.tv_nsec - start.tv_nsec) / 1000000,
               step == 0 ? "first" : what_it_was);
        fflush(stdout);
        long spent = (now.tv_sec - begun.tv_sec) * 1000 +
                     (now.tv_nsec - begun.tv_nsec) / 1000000;
        if (spent < ms) {
            usleep((useconds_t)(ms - spent) * 1000);
        }
    }
    puts("end");
    fflush(stdout);
    pause();
    return 0;
}
