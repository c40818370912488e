/* Makes every sync of the processes it is preloaded into take longer, as on a slower disk; SLOW_SYNC_US says how
   much. The floors are measured under it too, so promises keep their meaning. Syncs that the kernel does for a process by
   itself cannot be slowed: that way is closed, and a broker falls back to the calls below. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

static void wait_longer(void) {
    const char *text = getenv("SLOW_SYNC_US");
    long us = text ? atol(text) : 0;
    struct timespec left = {us / 1000000, (us % 1000000) * 1000};
    while (us > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

int fdatasync(int descriptor) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_longer();
    return real(descriptor);
}

int fsync(int descriptor) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_longer();
    return real(descriptor);
}

long syscall(long number, ...) {
    static long (*real)(long, ...);
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_io_setup) {
        errno = ENOSYS;
        return -1;
    }
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    return real(number, a, b, c, d, e, f);
}
