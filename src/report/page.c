/* The page: header, sections, figures; the frame of every drawing. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

int poise_page_create(const char *title, const char *subtitle,
                      struct poise_page **out)
{
    struct poise_page *page = poise_alloc(1, sizeof *page);

    if (!page) {
        return -ENOMEM;
    }
    report_escape(&page->title, title);
    report_escape(&page->subtitle, subtitle);
    if (page->title.error || page->subtitle.error) {
        poise_page_destroy(page);
        return -ENOMEM;
    }
    *out = page;
    return 0;
}

void poise_page_destroy(struct poise_page *page)
{
    if (!page) {
        return;
    }
    poise_buf_free(&page->title);
    poise_buf_free(&page->subtitle);
    poise_buf_free(&page->body);
    free(page);
}

int report_finish(struct poise_page *page, size_t start)
{
    if (page->body.error) {
        page->body.len = start;
        page->body.error = 0;
        return -ENOMEM;
    }
    return 0;
}

int poise_page_section(struct poise_page *page, const char *title,
                       const char *text)
{
    size_t start = page->body.len;

    poise_buf_puts(&page->body, "<h2>");
    report_escape(&page->body, title);
    poise_buf_puts(&page->body, "</h2>\n");
    if (text) {
        poise_buf_puts(&page->body, "<p>");
        report_escape(&page->body, text);
        poise_buf_puts(&page->body, "</p>\n");
    }
    return report_finish(page, start);
}

int poise_page_figures(struct poise_page *page, const char *const *labels,
                       const char *const *values, size_t count)
{
    size_t start = page->body.len;

    poise_buf_puts(&page->body, "<dl class=\"figures\">\n");
    for (size_t i = 0; i < count; i++) {
        poise_buf_puts(&page->body, "<div><dt>");
        report_escape(&page->body, labels[i]);
        poise_buf_puts(&page->body, "</dt><dd>");
        report_escape(&page->body, values[i]);
        poise_buf_puts(&page->body, "</dd></div>\n");
    }
    poise_buf_puts(&page->body, "</dl>\n");
    return report_finish(page, start);
}

size_t report_begin(struct poise_page *page, const char *title,
                    const char *label, double height)
{
    struct poise_buf *out = &page->body;
    size_t start = out->len;

    page->drawings++;
    poise_buf_puts(out, "<figure>\n<figcaption>");
    report_escape(out, title);
    poise_buf_printf(out,
                     "</figcaption>\n<svg viewBox=\"0 0 %d %.0f\" role=\"img\" "
                     "aria-labelledby=\"d%u\">\n<title id=\"d%u\">",
                     REPORT_WIDTH, height, page->drawings, page->drawings);
    report_escape(out, title);
    poise_buf_puts(out, ": ");
    report_escape(out, label);
    poise_buf_puts(out, "</title>\n");
    return start;
}

void report_numbers(struct poise_page *page, const char *const *heads,
                    size_t count)
{
    struct poise_buf *out = &page->body;

    poise_buf_puts(out, "</svg>\n<details><summary>Numbers</summary>"
                        "<div class=\"scroll\"><table>\n<thead><tr>");
    for (size_t i = 0; i < count; i++) {
        poise_buf_printf(out, "<th%s scope=\"col\">",
                         i > 0 ? " class=\"r\"" : "");
        report_escape(out, heads[i]);
        poise_buf_puts(out, "</th>");
    }
    poise_buf_puts(out, "</tr></thead>\n<tbody>\n");
}

int report_end(struct poise_page *page, size_t start)
{
    poise_buf_puts(&page->body,
                   "</tbody></table></div></details>\n</figure>\n");
    return report_finish(page, start);
}

int poise_page_html(const struct poise_page *page,
                    const struct poise_page_run *run, struct poise_buf *out)
{
    poise_buf_puts(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
                        "<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
                        "content=\"width=device-width, initial-scale=1\">\n"
                        "<meta name=\"color-scheme\" content=\"light dark\">\n"
                        "<title>");
    poise_buf_append(out, page->title.data, page->title.len);
    poise_buf_puts(out, "</title>\n<style>\n");
    poise_buf_puts(out, report_style);
    poise_buf_puts(out, report_style_narrow);
    poise_buf_puts(out, "</style>\n</head>\n<body>\n<header>\n<h1>");
    poise_buf_append(out, page->title.data, page->title.len);
    poise_buf_puts(out, "</h1>\n");
    if (page->subtitle.len > 0) {
        poise_buf_puts(out, "<p>");
        poise_buf_append(out, page->subtitle.data, page->subtitle.len);
        poise_buf_puts(out, "</p>\n");
    }
    poise_buf_puts(out, "</header>\n<main>\n");
    poise_buf_append(out, page->body.data, page->body.len);
    poise_buf_puts(out, "</main>\n");
    if (run) {
        report_foot(out, run);
    }
    poise_buf_puts(out, "</body>\n</html>\n");
    return out->error;
}
