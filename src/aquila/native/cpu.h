/* Everything that depends on the compiler, the C library or the processor.
 *
 * No other file here tests for any of them. All variants of a function give the same bits.
 */
#ifndef AQUILA_CPU_H
#define AQUILA_CPU_H

#include <limits.h> /* any header of the C library: glibc's define __GLIBC__ */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__GNUC__)
#error "AQUILA's C code needs GCC or Clang"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "AQUILA's C code stores whole words and needs a little-endian machine"
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Compile a function once per x86-64 level; the dynamic loader picks the best one for the CPU.
 *
 * GCC knows the levels from version 12 on, and only glibc's loader can pick. Elsewhere the function
 * is compiled once. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
/* The same for loops of a few long chains of integer operations. GCC would put parts of the chains
 * into vectors, which takes twice as long. */
#define SCALAR_CLONES                                                                              \
    __attribute__((target_clones("arch=x86-64-v3", "default"), optimize("no-tree-slp-vectorize")))
#else
#define CPU_CLONES
#define SCALAR_CLONES
#endif

/* Return one number if x is below a limit, else another one, and count the first case. The same
 * expression in C becomes a branch, and a processor that cannot predict it loses a third of its
 * time. */
ALWAYS_INLINE uint32_t choose_below(uint32_t x, uint32_t limit, uint32_t below, uint32_t otherwise,
                                    size_t *count) {
#if defined(__x86_64__) && defined(__LP64__)
    __asm__("cmpl %[limit], %[x]\n\tcmovb %[below], %[chosen]\n\tadcq $0, %[count]"
            : [chosen] "+r"(otherwise), [count] "+r"(*count)
            : [x] "r"(x), [limit] "ri"(limit), [below] "r"(below)
            : "cc");
    return otherwise;
#else
    *count += x < limit;
    return x < limit ? below : otherwise;
#endif
}

/* Ask the kernel to map a new block of memory in huge pages. Mapping it in small pages takes
 * several times as long as writing to it. Without the advice the pass is slower, and nothing else.
 */
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(MADV_HUGEPAGE)
enum { HUGE_PAGE = 1 << 21 };
static inline void advise_huge_pages(void *block, size_t size) {
    uintptr_t start = ((uintptr_t)block + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)block + size) & ~(uintptr_t)(HUGE_PAGE - 1);
    if (start < end) (void)madvise((void *)start, end - start, MADV_HUGEPAGE);
}
#else
static inline void advise_huge_pages(void *block, size_t size) {
    (void)block;
    (void)size;
}
#endif

/* Carry-less multiplication: functions marked CLMUL may run only if cpu_has_clmul(). */
#if defined(__x86_64__)
#include <immintrin.h>
#define CLMUL __attribute__((target("pclmul,sse4.1")))
static inline bool cpu_has_clmul(void) {
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

/* Vectors of 32 bytes: functions marked AVX2 may run only if cpu_has_avx2(). */
#define AVX2 __attribute__((target("avx2")))
static inline bool cpu_has_avx2(void) { return __builtin_cpu_supports("avx2"); }

/* Vectors of 64 bytes: functions marked AVX512 may run only if cpu_has_avx512(). */
#define AVX512 __attribute__((target("avx512f,popcnt")))
static inline bool cpu_has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("popcnt");
}
#endif

/* Load a part of memory into the cache that will be written. */
#define PREFETCH(address) __builtin_prefetch((address), 1)
/* Load a part of memory into the cache that will be read. */
#define PREFETCH_READ(address) __builtin_prefetch((address), 0)

/* Zero bits before the highest one bit; `word` is not 0. */
static inline unsigned leading_zeros(uint32_t word) { return (unsigned)__builtin_clz(word); }

/* Zero bits after the lowest one bit; `word` is not 0. */
static inline unsigned trailing_zeros(uint64_t word) { return (unsigned)__builtin_ctzll(word); }

static inline unsigned one_bits_in(uint64_t word) { return (unsigned)__builtin_popcountll(word); }

#endif
