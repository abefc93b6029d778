"""Line charts as SVG files, for the tables that bench/run writes."""

import math

COLOURS = ("#1f5fa8", "#c0501e", "#3a8a3f", "#8a4fa8", "#8a6d1e", "#555555",
           "#d03a7a", "#2aa0a8")
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 36, 50


class Axis:
    """From values to places, linear or logarithmic, with round ticks."""

    def __init__(self, values, log, begin, end):
        self.log = log
        self.begin, self.end = begin, end
        low, high = min(values), max(values)
        if log:
            self.low = math.floor(math.log10(low))
            self.high = max(math.ceil(math.log10(high)), self.low + 1)
        else:
            step = self.step_of((high - min(low, 0)) or 1)
            self.low = math.floor(min(low, 0) / step) * step
            self.high = math.ceil(high / step) * step or step

    @staticmethod
    def step_of(span):
        step = 10 ** math.floor(math.log10(span / 4))
        for more in (1, 2, 5, 10):
            if span / (step * more) <= 6:
                return step * more
        return step * 10

    def place(self, value):
        at = math.log10(value) if self.log else value
        share = (at - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self):
        if self.log:
            return [10.0 ** i for i in range(self.low, self.high + 1)]
        step = self.step_of(self.high - self.low)
        count = round((self.high - self.low) / step)
        return [self.low + i * step for i in range(count + 1)]


def number(value):
    if value >= 1e6 and value % 1e6 == 0:
        return f"{value / 1e6:g}M"
    if value >= 1e4 and value % 1e3 == 0:
        return f"{value / 1e3:g}k"
    return f"{value:g}"


def text(x, y, words, **style):
    more = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in style.items())
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{words}</text>'


def chart(path, title, across, up, lines, log=(False, False), dots=False):
    """Write an SVG: `lines` is a dict of name -> [(x, y)]."""
    points = [p for line in lines.values() for p in line]
    if not points:
        return
    x = Axis([p[0] for p in points], log[0], LEFT, WIDTH - RIGHT)
    y = Axis([p[1] for p in points], log[1], HEIGHT - BOTTOM, TOP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
           f'height="{HEIGHT}" font-family="sans-serif" font-size="11">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text(LEFT, 20, title, font_size=13)]
    for tick in x.ticks():
        at = x.place(tick)
        out.append(f'<path d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}" '
                   'stroke="#ddd"/>')
        out.append(text(at, HEIGHT - BOTTOM + 16, number(tick),
                        text_anchor="middle"))
    for tick in y.ticks():
        at = y.place(tick)
        out.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" '
                   'stroke="#ddd"/>')
        out.append(text(LEFT - 6, at + 4, number(tick), text_anchor="end"))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, across,
                    text_anchor="middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    out.append(text(16, middle, up, text_anchor="middle",
                    transform=f"rotate(-90 16 {middle})"))
    for i, (name, line) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        places = [(x.place(a), y.place(b)) for a, b in line]
        if not dots:
            out.append('<polyline fill="none" stroke="' + colour +
                       '" stroke-width="1.5" points="' + " ".join(
                           f"{a:.1f},{b:.1f}" for a, b in places) + '"/>')
        for a, b in places:
            out.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" '
                       f'r="{1.2 if dots else 2.5}" fill="{colour}"/>')
        at = TOP + 14 + 18 * i
        out.append(f'<rect x="{WIDTH - RIGHT + 12}" y="{at - 9}" width="10" '
                   f'height="10" fill="{colour}"/>')
        out.append(text(WIDTH - RIGHT + 28, at, name))
    out.append("</svg>")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")
