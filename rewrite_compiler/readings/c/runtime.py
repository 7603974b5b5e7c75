"""The runtime text of printed C files: exact integer operators, checked indices, scratch memory that is freed on every exit."""

from __future__ import annotations

import re

PRELUDE = """\
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if FLT_EVAL_METHOD != 0
#error "float and double must be evaluated in their own precision"
#endif
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif
"""
RUNTIME = """\
enum { FM_OUTSIDE = -1, FM_DIVISION = -2, FM_SHIFT = -3, FM_MEMORY = -4 };
enum { FM_LIVE = 256, FM_VALUES = 16 };
typedef struct {
    int trap;                  /* 0, or why the values from here on mean nothing */
    int live_count;            /* scratch arrays in use */
    void *live[FM_LIVE];
    int64_t value[FM_VALUES];  /* the values of a diagnostic */
} fm_scratch;

static inline int64_t fm_at(fm_scratch *s, int64_t i, int64_t n)
{
    if ((uint64_t)i < (uint64_t)n) return i;
    s->trap = FM_OUTSIDE;
    return 0;
}
static inline int64_t fm_shr(int64_t x, int64_t n)
{
    if (n > 63) n = 63;
    return x < 0 ? ~(~x >> n) : x >> n;
}
static inline int64_t fm_shl(int64_t x, int64_t n)
{
    return n > 63 ? 0 : (int64_t)((uint64_t)x << n);
}
static inline int64_t fm_amount(fm_scratch *s, int64_t n)
{
    if (n >= 0) return n;
    s->trap = FM_SHIFT;
    return 0;
}
static inline int64_t fm_divisor(fm_scratch *s, int64_t y)
{
    if (y != 0) return y;
    s->trap = FM_DIVISION;
    return 1;
}
static inline int64_t fm_div(int64_t x, int64_t y)
{
    int64_t q = x / y;
    return q - (int64_t)(x % y != 0 && (x < 0) != (y < 0));
}
static inline int64_t fm_mod(int64_t x, int64_t y)
{
    int64_t r = x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
static inline int64_t fm_signed(int64_t x, int bits)
{
    const uint64_t half = (uint64_t)1 << (bits - 1), mask = half | (half - 1);
    return (int64_t)(((uint64_t)x & mask) ^ half) - (int64_t)half;
}
static inline int64_t fm_clz(int64_t x, int bits)
{
    int64_t n = bits;
    for (int half = 32; half > 0; half /= 2) {
        if (x >> half) x >>= half, n -= half;
    }
    return n - x;
}
static inline int64_t fm_floor(double x)
{
    const int64_t n = (int64_t)x;
    return n - (x < (double)n && n != INT64_MIN);
}
static inline int64_t fm_min(int64_t x, int64_t y) { return x < y ? x : y; }
static inline int64_t fm_max(int64_t x, int64_t y) { return x > y ? x : y; }
static inline double fm_dmin(double x, double y) { return x < y ? x : y; }
static inline double fm_dmax(double x, double y) { return x > y ? x : y; }
static inline float fm_fmin(float x, float y) { return x < y ? x : y; }
static inline float fm_fmax(float x, float y) { return x > y ? x : y; }
"""
# only where code has local arrays too large for the stack
SCRATCH = """\
static inline void *fm_new(fm_scratch *s, int64_t count, size_t size)
{
    void *p = s->live_count < FM_LIVE && count >= 0 ? calloc((size_t)count + 1, size) : NULL;
    if (p) s->live[s->live_count++] = p;
    return p;
}
static inline void fm_drop(fm_scratch *s, int down_to)
{
    while (s->live_count > down_to) free(s->live[--s->live_count]);
}
"""


def called_functions(functions: str, code: str) -> str:
    """Return the runtime functions that code calls, directly or through others: compilers warn of unused ones."""
    head, *parts = re.split(r"(?m)^(?=static inline )", functions)
    names = [re.search(r"(\w+)\(", part)[1] for part in parts]  # type: ignore[index]
    called = set(re.findall(r"\w+", code))
    while new_calls := {n for n, part in zip(names, parts, strict=True) if n in called for n in re.findall(r"\w+", part)} - called:
        called |= new_calls
    return head + "".join(part for n, part in zip(names, parts, strict=True) if n in called)
