/* Makes the N-th call that opens, writes, truncates, syncs, renames, links, removes or makes something below a folder fail, or kills the process there.

   Loaded by LD_PRELOAD, so that it reaches the C libraries too. See server.py for its use. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long *calls; /* shared with the parent of a fork */
static long fail_at;
static int fail_with; /* an errno, or 0 to be killed */
static char folder[4096];

void failing_io_share(void) {
    calls = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void failing_io_arm(const char *below, long at, int with) {
    *calls = 0;
    fail_at = at;
    fail_with = with;
    strncpy(folder, below, sizeof folder - 1);
}

long failing_io_calls(void) { return *calls; }

static int fails(void) {
    if (++*calls != fail_at) return 0;
    if (fail_with == 0) kill(getpid(), SIGKILL);
    errno = fail_with;
    return 1;
}

static int path_fails(const char *path) {
    if (!folder[0]) return 0;
    if (path[0] == '/' && strncmp(path, folder, strlen(folder)) != 0) return 0;
    return fails();
}

static int names; /* whether calls that link, remove and make names count too */

void failing_io_names(int count) { names = count; }

static int name_fails(const char *path) { return names && path_fails(path); }

static int file_fails(int file) {
    char link[64], path[4096];
    if (!folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (strncmp(path, folder, strlen(folder)) != 0) return 0;
    return fails();
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPEN(name)                                    \
    int name(const char *path, int flags, ...) {      \
        va_list rest;                                 \
        va_start(rest, flags);                        \
        mode_t mode = va_arg(rest, mode_t);           \
        va_end(rest);                                 \
        if (path_fails(path)) return -1;              \
        return REAL(name)(path, flags, mode);         \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                          \
    int name(int where, const char *path, int flags, ...) {   \
        va_list rest;                                         \
        va_start(rest, flags);                                \
        mode_t mode = va_arg(rest, mode_t);                   \
        va_end(rest);                                         \
        if (path_fails(path)) return -1;                      \
        return REAL(name)(where, path, flags, mode);          \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *data, size_t size) {
    return file_fails(file) ? -1 : REAL(write)(file, data, size);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    return file_fails(file) ? -1 : REAL(pwrite)(file, data, size, at);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    return file_fails(file) ? -1 : REAL(pwrite64)(file, data, size, at);
}
int ftruncate(int file, off_t size) { return file_fails(file) ? -1 : REAL(ftruncate)(file, size); }
int ftruncate64(int file, off64_t size) { return file_fails(file) ? -1 : REAL(ftruncate64)(file, size); }
int fsync(int file) { return file_fails(file) ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return file_fails(file) ? -1 : REAL(fdatasync)(file); }
int renameat2(int old, const char *from, int new, const char *to, unsigned flags) {
    return name_fails(from) ? -1 : REAL(renameat2)(old, from, new, to, flags);
}
int linkat(int old, const char *from, int new, const char *to, int flags) {
    return name_fails(from) ? -1 : REAL(linkat)(old, from, new, to, flags);
}
int symlinkat(const char *text, int where, const char *path) {
    return name_fails(path) ? -1 : REAL(symlinkat)(text, where, path);
}
int unlink(const char *path) { return name_fails(path) ? -1 : REAL(unlink)(path); }
int unlinkat(int where, const char *path, int flags) {
    return name_fails(path) ? -1 : REAL(unlinkat)(where, path, flags);
}
int mkdir(const char *path, mode_t mode) { return name_fails(path) ? -1 : REAL(mkdir)(path, mode); }
int mkdirat(int where, const char *path, mode_t mode) {
    return name_fails(path) ? -1 : REAL(mkdirat)(where, path, mode);
}
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *there, size_t size, unsigned flags) {
    return names && file_fails(to) ? -1 : REAL(copy_file_range)(from, at, to, there, size, flags);
}
int rename(const char *from, const char *to) { return path_fails(from) ? -1 : REAL(rename)(from, to); }
