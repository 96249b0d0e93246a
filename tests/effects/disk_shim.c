/* Stands between a process and its disk (LD_PRELOAD): records every write, sync, truncation, creation and removal of
 * the files whose name contains SHIM_MATCH, in their order, into SHIM_LOG, and fails the next ones on demand.
 * Reads and shared memory are left alone: neither reaches the disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILES 4096
static char *names[FILES];
static int log_file = -1;
static const char *match;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static int fail_op, fail_count, fail_errno;

static void set_up(void) {
    if (match) return;
    match = getenv("SHIM_MATCH");
    const char *path = getenv("SHIM_LOG");
    if (!match) match = "\001";
    if (path) log_file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void *data, size_t size) {
    const char *at = data;
    while (size) {
        ssize_t done = syscall(SYS_write, log_file, at, size);
        if (done <= 0) _exit(97);
        at += done;
        size -= (size_t)done;
    }
}

static void record(char op, const char *name, int64_t position, const void *data, uint32_t size) {
    if (log_file < 0) return;
    uint16_t length = (uint16_t)strlen(name);
    put(&op, 1);
    put(&length, 2);
    put(name, length);
    put(&position, 8);
    put(&size, 4);
    if (size) put(data, size);
}

/* From Python: fail the next `count` operations of one kind ('w' write, 's' sync) with `error`. */
void shim_fail(int op, int count, int error) {
    pthread_mutex_lock(&order);
    fail_op = op, fail_count = count, fail_errno = error;
    pthread_mutex_unlock(&order);
}

/* From Python: the program has acknowledged number `n` to the world. */
void shim_acknowledge(int64_t n) {
    pthread_mutex_lock(&order);
    set_up();
    record('a', "", n, NULL, 0);
    pthread_mutex_unlock(&order);
}

static int must_fail(int op) {
    if (fail_count <= 0 || fail_op != op) return 0;
    fail_count--;
    errno = fail_errno;
    return 1;
}

static const char *name_of(int file) { return file >= 0 && file < FILES ? names[file] : NULL; }

static int opened(int file, const char *path, int existed) {
    set_up();
    if (file >= 0 && file < FILES && strstr(path, match)) {
        pthread_mutex_lock(&order);
        free(names[file]);
        names[file] = strdup(path);
        if (!existed) record('c', path, 0, NULL, 0);
        pthread_mutex_unlock(&order);
    }
    return file;
}

static int open_as(const char *path, int flags, mode_t mode) {
    int existed = syscall(SYS_faccessat, AT_FDCWD, path, F_OK, 0) == 0;
    return opened((int)syscall(SYS_openat, AT_FDCWD, path, flags, mode), path, existed);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_as(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_as(path, flags | O_LARGEFILE, mode);
}

int close(int file) {
    pthread_mutex_lock(&order);
    if (name_of(file)) {
        free(names[file]);
        names[file] = NULL;
    }
    pthread_mutex_unlock(&order);
    return (int)syscall(SYS_close, file);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t position) {
    pthread_mutex_lock(&order);
    const char *name = name_of(file);
    ssize_t done = -1;
    if (!(name && must_fail('w'))) {
        done = syscall(SYS_pwrite64, file, data, size, position);
        if (name && done > 0) record('w', name, position, data, (uint32_t)done);
    }
    pthread_mutex_unlock(&order);
    return done;
}

ssize_t pwrite(int file, const void *data, size_t size, off_t position) { return pwrite64(file, data, size, position); }

static int sync_as(int file, long number) {
    pthread_mutex_lock(&order);
    const char *name = name_of(file);
    int done = -1;
    if (!(name && must_fail('s'))) {
        done = (int)syscall(number, file);
        if (name && done == 0) record('s', name, 0, NULL, 0);
        else if (!name && done == 0) record('d', "", 0, NULL, 0); /* perhaps a folder: names are durable now */
    }
    pthread_mutex_unlock(&order);
    return done;
}

int fsync(int file) { set_up(); return sync_as(file, SYS_fsync); }
int fdatasync(int file) { set_up(); return sync_as(file, SYS_fdatasync); }

int ftruncate64(int file, off64_t size) {
    pthread_mutex_lock(&order);
    const char *name = name_of(file);
    int done = (int)syscall(SYS_ftruncate, file, size);
    if (name && done == 0) record('t', name, size, NULL, 0);
    pthread_mutex_unlock(&order);
    return done;
}

int ftruncate(int file, off_t size) { return ftruncate64(file, size); }

int unlink(const char *path) {
    set_up();
    pthread_mutex_lock(&order);
    int done = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (done == 0 && strstr(path, match)) record('u', path, 0, NULL, 0);
    pthread_mutex_unlock(&order);
    return done;
}
