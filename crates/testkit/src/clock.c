/* A wall clock that a test sets. Preloaded into a process, it replaces the time functions of the C library.
 *
 * One 64-bit word in a shared file contains the time. If its lowest bit is 0, the other bits are an offset to the real time in
 * microseconds. If it is 1, they are the frozen time. Monotonic clocks are unchanged, because timers would hang. System calls are
 * made directly: looking up the library's functions allocates, and an allocator that reads the time would recurse. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t *word;

__attribute__((constructor)) static void open_word(void) {
    const char *path = getenv("IPSEITY_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) word = page;
}

static int64_t now_us(void) {
    struct timespec real;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &real);
    int64_t real_us = (int64_t)real.tv_sec * 1000000 + real.tv_nsec / 1000;
    int64_t set = word ? atomic_load(word) : 0;
    return set & 1 ? set >> 1 : real_us + (set >> 1);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return (int)syscall(SYS_clock_gettime, clock, out);
    int64_t us = now_us();
    out->tv_sec = us / 1000000;
    out->tv_nsec = us % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    int64_t us = now_us();
    out->tv_sec = us / 1000000;
    out->tv_usec = us % 1000000;
    return 0;
}

time_t time(time_t *out) {
    time_t now = now_us() / 1000000;
    if (out) *out = now;
    return now;
}
