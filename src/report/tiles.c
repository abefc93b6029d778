/*
 * A tree as tiles: data for a script, the script, and the table under it.
 *
 * The script lays tiles out so that they are nearly square (Bruls, Huizing, van
 * Wijk, "Squarified treemaps", 2000), two levels at a time.
 */
#include "internal.h"

#include <errno.h>
#include <poise/text.h>
#include <stdlib.h>

/* Rows of the table under the drawing. */
enum { TABLE_MOST = 200 };

static const char script[] =
    "function poiseTiles(id,t){\n"
    "const box=document.getElementById(id),bar=box.previousElementSibling;\n"
    "const kids=t.n.map(()=>[]),roots=[];let way=0,at=-1;\n"
    "t.p.forEach((p,i)=>(p<0?roots:kids[p]).push(i));\n"
    "const big=(a,b)=>t.v[b]-t.v[a];kids.forEach(k=>k.sort(big));"
    "roots.sort(big);\n"
    "const amount=v=>{if(t.u!=1)return v.toLocaleString('en');"
    "const u=['B','KiB','MiB','GiB','TiB','PiB'];let i=0;"
    "while(v>=1024&&i<5){v/=1024;i++}return(i?v.toFixed(1):v)+' '+u[i]};\n"
    "const colour=i=>'var(--s'+t.c[way].of[i]+')';\n"
    "const path=i=>t.p[i]<0?t.n[i]:path(t.p[i]).replace(/\\/$/,'')+'/'+t.n[i];"
    "\n"
    "function rows(list,x,y,w,h){const out=[];"
    "let sum=list.reduce((s,i)=>s+t.v[i],0);if(!(sum>0))return out;"
    "const k=w*h/sum;let left=list.slice();\n"
    "const worst=(r,s,side)=>{const a=s*s/(side*side);"
    "return Math.max(t.v[r[0]]*k/a,a/(t.v[r[r.length-1]]*k))};\n"
    "while(left.length){const side=Math.min(w,h),row=[];let s=0;"
    "if(side<2)break;"
    "while(left.length){const "
    "v=t.v[left[0]]*k;if(!(v>0)){left.shift();continue}"
    "if(row.length&&worst(row.concat(left[0]),s+v,side)>worst(row,s,side))"
    "break;"
    "row.push(left.shift());s+=v}\n"
    "if(!row.length)break;const d=s/side;let o=0;"
    "row.forEach(i=>{const e=t.v[i]*k/d;"
    "out.push(w<h?[i,x+o,y,e,d]:[i,x,y+o,d,e]);o+=e});"
    "if(w<h){y+=d;h-=d}else{x+=d;w-=d}}return out}\n"
    "function tile(r,inner){const[i,x,y,w,h]=r;if(w<3||h<3)return;"
    "const b=document.createElement('button');b.type='button';"
    "b.style.cssText='left:'+x+'px;top:'+y+'px;width:'+w+'px;height:'+h+"
    "'px;background:'+colour(i)+(inner?'':';opacity:.92');\n"
    "b.title=path(i)+'\\n'+amount(t.v[i])+'\\n'+t.c.map(c=>c.name+': '+"
    "c.classes[c.of[i]]).join('\\n');"
    "if(w>34&&h>15)b.textContent=t.n[i]+(w>90?'  '+amount(t.v[i]):'');"
    "if(!kids[i].length)b.className='leaf';"
    "b.dataset.i=i;b.tabIndex=-1;"
    "b.onclick=()=>{if(kids[i].length)go(i)};box.append(b);\n"
    "if(!inner&&w>60&&h>50)"
    "rows(kids[i],x+3,y+18,w-6,h-21).forEach(r=>tile(r,true))}\n"
    "function draw(){box.textContent='';bar.textContent='';"
    "const up=[];for(let i=at;i>=0;i=t.p[i])up.unshift(i);"
    "if(roots.length>1)up.unshift(-1);\n"
    "up.forEach(i=>{const b=document.createElement('button');b.type='button';"
    "b.textContent=i<0?'all':t.n[i];b.onclick=()=>go(i);bar.append(b)});\n"
    "const s=document.createElement('span');s.textContent=amount(at<0?"
    "roots.reduce((a,i)=>a+t.v[i],0):t.v[at]);bar.append(s);\n"
    "if(t.c.length>1){const c=document.createElement('select');"
    "c.setAttribute('aria-label','colours');t.c.forEach((k,i)=>"
    "c.add(new Option('colours: '+k.name,i,false,i==way)));"
    "c.onchange=()=>{way=+c.value;draw();"
    "bar.querySelector('select').focus()};bar.append(c)}\n"
    "t.c[way].classes.forEach((n,i)=>{if(!t.c[way].of.includes(i))return;"
    "const e=document.createElement('span'),m=document.createElement('i');"
    "m.style.background='var(--s'+i+')';e.append(m,n);bar.append(e)});\n"
    "rows(at<0?roots:kids[at],0,0,box.clientWidth,box.clientHeight)"
    ".forEach(r=>tile(r,false));"
    "if(box.firstChild)box.firstChild.tabIndex=0}\n"
    /* One tile is in the order of Tab; the arrows lead to the others. */
    "const pick=b=>{if(!b)return;[...box.children].forEach(o=>o.tabIndex=-1);"
    "b.tabIndex=0;b.focus()};\n"
    "function go(i){let from=at;at=i;draw();"
    "while(from>=0&&t.p[from]!=at)from=t.p[from];"
    "pick([...box.children].find(b=>b.dataset.i==from)||box.firstChild)}\n"
    "const middle=b=>{const r=b.getBoundingClientRect();"
    "return[r.x+r.width/2,r.y+r.height/2]};\n"
    "box.onkeydown=e=>{const way={ArrowLeft:[-1,0],ArrowRight:[1,0],"
    "ArrowUp:[0,-1],ArrowDown:[0,1]}[e.key];\n"
    "if(way){e.preventDefault();const from=middle(e.target);let best,least=1e9;"
    "[...box.children].forEach(b=>{const m=middle(b),"
    "x=m[0]-from[0],y=m[1]-from[1],on=x*way[0]+y*way[1],"
    "off=Math.abs(x*way[1])+Math.abs(y*way[0]);"
    "if(on>1&&on+2*off<least){least=on+2*off;best=b}});pick(best)}\n"
    "else if((e.key=='Escape'||e.key=='Backspace')&&at>=0&&"
    "(t.p[at]>=0||roots.length>1)){e.preventDefault();go(t.p[at])}};\n"
    "at=roots.length==1?roots[0]:-1;draw();"
    "addEventListener('resize',draw)}\n";

/* What stands in a script must not end it. */
static void put_json(struct poise_buf *out, const struct poise_buf *json)
{
    for (size_t i = 0; i < json->len; i++) {
        if (json->data[i] == '<') {
            poise_buf_puts(out, "\\u003c");
        } else {
            poise_buf_putc(out, json->data[i]);
        }
    }
}

static int put_data(struct poise_buf *out, const struct poise_tiles *tiles)
{
    struct poise_buf text = {0};
    struct poise_json json = poise_json_to(&text, true);
    poise_json_object(&json, NULL);
    poise_json_u64(&json, "u", tiles->unit);
    poise_json_array(&json, "n");
    for (size_t i = 0; i < tiles->count; i++) {
        poise_json_string(&json, NULL, tiles->labels[i]);
    }
    poise_json_end_array(&json);
    poise_json_array(&json, "p");
    for (size_t i = 0; i < tiles->count; i++) {
        poise_json_i64(&json, NULL, tiles->parents[i]);
    }
    poise_json_end_array(&json);
    poise_json_array(&json, "v");
    for (size_t i = 0; i < tiles->count; i++) {
        poise_json_double(&json, NULL, tiles->values[i]);
    }
    poise_json_end_array(&json);
    poise_json_array(&json, "c");
    for (size_t k = 0; k < tiles->colouring_count; k++) {
        const struct poise_tiles_colouring *way = &tiles->colourings[k];
        poise_json_object(&json, NULL);
        poise_json_string(&json, "name", way->name);
        poise_json_array(&json, "classes");
        for (size_t i = 0; i < way->class_count; i++) {
            poise_json_string(&json, NULL, way->classes[i]);
        }
        poise_json_end_array(&json);
        poise_json_array(&json, "of");
        for (size_t i = 0; i < tiles->count; i++) {
            poise_json_u64(&json, NULL, way->of[i]);
        }
        poise_json_end_array(&json);
        poise_json_end_object(&json);
    }
    poise_json_end_array(&json);
    poise_json_end_object(&json);
    put_json(out, &text);
    int code = text.error;
    poise_buf_free(&text);
    return code;
}

static void put_path(struct poise_buf *out, const struct poise_tiles *tiles,
                     int at)
{
    if (tiles->parents[at] >= 0) {
        put_path(out, tiles, tiles->parents[at]);
        poise_buf_puts(out, "/");
    }
    report_escape(out, tiles->labels[at]);
}

static void put_rows(struct poise_buf *out, const struct poise_tiles *tiles)
{
    for (size_t i = 0; i < tiles->count && i < TABLE_MOST; i++) {
        poise_buf_puts(out, "<tr><td>");
        put_path(out, tiles, (int)i);
        poise_buf_puts(out, "</td><td class=\"r\">");
        report_value(out, tiles->values[i], tiles->unit);
        poise_buf_puts(out, "</td></tr>\n");
    }
    if (tiles->count > TABLE_MOST) {
        poise_buf_printf(out, "<tr><td>and %zu more</td><td></td></tr>\n",
                         tiles->count - TABLE_MOST);
    }
}

int poise_page_tiles(struct poise_page *page, const struct poise_tiles *tiles)
{
    struct poise_buf *out = &page->body;
    size_t start = out->len;
    for (size_t i = 0; i < tiles->count; i++) {
        if (tiles->parents[i] >= (int)i) {
            return poise_error_set(EINVAL, "draw", tiles->title,
                                   "a parent comes behind its child");
        }
    }
    page->drawings++;
    poise_buf_puts(out, "<figure>\n<figcaption>");
    report_escape(out, tiles->title);
    poise_buf_printf(out,
                     "</figcaption>\n<div class=\"bar\"></div>"
                     "<div class=\"tiles\" id=\"t%u\"><noscript>Without "
                     "scripts there is the table below.</noscript></div>\n"
                     "<script>\n",
                     page->drawings);
    if (!page->has_tiles) {
        poise_buf_puts(out, script);
        page->has_tiles = true;
    }
    poise_buf_printf(out, "poiseTiles('t%u',", page->drawings);
    int code = put_data(out, tiles);
    poise_buf_puts(out, ");\n</script>\n<details><summary>Numbers</summary>"
                        "<div class=\"scroll\"><table>\n<thead><tr><th "
                        "scope=\"col\">folder</th><th class=\"r\" "
                        "scope=\"col\">amount</th></tr></thead>\n<tbody>\n");
    put_rows(out, tiles);
    int end = report_end(page, start);
    return code < 0 ? code : end;
}
