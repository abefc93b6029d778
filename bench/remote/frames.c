/*
 * Draws a recorded session into a window of an X server, update by update, for
 * bench/remote/screens_others: frames SESSION MILLISECONDS [UPDATES]. Says
 * 'drawn' behind the last one, and stays.
 *
 *     cc -O2 frames.c $(pkg-config --cflags --libs x11) -lpoise
 */
#include <poise/screen.h>

#include <X11/Xlib.h>
#include <X11/Xutil.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static Display *dpy;
static Window window;

static void open_window(const struct poise_screen_picture *picture)
{
    XEvent event;
    dpy = XOpenDisplay(NULL);
    if (!dpy) {
        fprintf(stderr, "frames: no display\n");
        exit(3);
    }
    window = XCreateSimpleWindow(dpy, DefaultRootWindow(dpy), 0, 0,
                                 picture->width, picture->height, 0, 0, 0);
    XSelectInput(dpy, window, ExposureMask);
    XMapWindow(dpy, window);
    XWindowEvent(dpy, window, ExposureMask, &event);
}

static void draw(const struct poise_screen_picture *picture,
                 const struct poise_screen_step *step)
{
    XImage *image =
        XCreateImage(dpy, DefaultVisual(dpy, 0), 24, ZPixmap, 0,
                     (char *)picture->pixels, picture->width, picture->height,
                     32, (int)(picture->width * sizeof *picture->pixels));
    GC gc = XCreateGC(dpy, window, 0, NULL);
    for (size_t i = 0; i < step->rect_count; i++) {
        const struct poise_screen_rect *rect = &step->rects[i];
        XPutImage(dpy, window, gc, image, (int)rect->x, (int)rect->y,
                  (int)rect->x, (int)rect->y, rect->width, rect->height);
    }
    XFreeGC(dpy, gc);
    image->data = NULL;
    XDestroyImage(image);
    XSync(dpy, False);
}

int main(int argc, char **argv)
{
    struct poise_screen_reader *reader;
    struct poise_screen_step step;
    int count = 0, most = argc > 3 ? atoi(argv[3]) : 1 << 30;
    if (argc < 3 || poise_screen_reader_open(argv[1], &reader) < 0 ||
        poise_screen_reader_next(reader, &step) <= 0) {
        fprintf(stderr, "usage: frames SESSION MILLISECONDS [UPDATES]\n");
        return 2;
    }
    open_window(poise_screen_reader_picture(reader));
    do {
        draw(poise_screen_reader_picture(reader), &step);
        usleep((useconds_t)atoi(argv[2]) * 1000);
    } while (++count < most && poise_screen_reader_next(reader, &step) > 0);
    puts("drawn");
    fflush(stdout);
    pause();
    return 0;
}
