/* A library to be preloaded into the broker. It stands between RocksDB and the
 * system, and notes what of a directory a loss of power would leave:
 *
 *   C <inode> <name>              a file was made, or got a further name
 *   R <inode> <from> <to>         it was renamed; what had the name is in the grave
 *   U <inode> <name>              its name was removed; it is in the grave
 *   F <number> <inode> <size>     a sync of a file begins: so much of it was written
 *   D <number>                    a sync of the directory begins
 *   S <number>                    that sync has ended well
 *   O <inode> <offset> <size>     bytes were written over: this is no log of what was
 *   P <inode> <size>              a spare of so many zeros became a log: it is written
 *                                 over from its beginning, and F says how far
 *   L <inode> <size> <longer>     a log got a hole at its end, and is written over that
 *
 * Content is not copied: files are only ever appended to (O would tell), or written
 * over zeros (P, L), so what was synced is a beginning of what is there. What is removed
 * gets a second name in the grave first, as the removal may not be durable. The journal
 * outlives SIGKILL as any file does.
 *
 * It also breaks the disk to order: the file named by POWERLOSS_FAULT holds a letter.
 *   f   no space: writes and reservations fail with ENOSPC        e   syncs fail with EIO
 *
 * Environment: POWERLOSS_DIR, the directory that is watched; POWERLOSS_JOURNAL;
 * POWERLOSS_GRAVE, a directory on the same file system; POWERLOSS_FAULT (optional).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *dir, *grave;
static size_t dir_length;
static int journal = -1, fault = -1;
static unsigned long syncs;
static ino_t dir_inode;
static dev_t device;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int (*real_open)(const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fsync)(int), (*real_fdatasync)(int);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_link)(const char *, const char *);
static int (*real_truncate)(const char *, off_t), (*real_ftruncate)(int, off_t), (*real_fallocate)(int, int, off_t, off_t);

static void *find(const char *name) {
	void *f = dlsym(RTLD_NEXT, name);
	if (!f) abort();
	return f;
}

__attribute__((constructor)) static void begin(void) {
	real_open = find("open");
	real_write = find("write");
	real_pwrite = find("pwrite");
	real_fsync = find("fsync");
	real_fdatasync = find("fdatasync");
	real_rename = find("rename");
	real_unlink = find("unlink");
	real_link = find("link");
	real_truncate = find("truncate");
	real_ftruncate = find("ftruncate");
	real_fallocate = find("fallocate");
	dir = getenv("POWERLOSS_DIR");
	grave = getenv("POWERLOSS_GRAVE");
	const char *j = getenv("POWERLOSS_JOURNAL"), *f = getenv("POWERLOSS_FAULT");
	if (!dir || !grave || !j) { dir = NULL; return; }
	dir_length = strlen(dir);
	journal = real_open(j, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (journal < 0) abort();
	if (f) fault = real_open(f, O_RDONLY | O_CLOEXEC);
}

static void note(const char *format, ...) {
	char line[3 * PATH_MAX];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	if (n <= 0 || (size_t)n >= sizeof line || real_write(journal, line, n) != n) abort();
}

/* entry is the name of a path right below the directory, or NULL. */
static const char *entry(const char *path) {
	if (!dir || strncmp(path, dir, dir_length) != 0 || path[dir_length] != '/') return NULL;
	const char *name = path + dir_length + 1;
	while (*name == '/') name++;
	return *name && !strchr(name, '/') ? name : NULL;
}

/* watched tells whether a descriptor is of a file of the directory. All inodes that
 * were ever noted are remembered; there are few. */
static struct { ino_t inode; int spare; off_t written; } known[1 << 16];
static unsigned known_count;

static int watched(int fd, struct stat *s) {
	int found = 0;
	if (!dir || fstat(fd, s) != 0 || !S_ISREG(s->st_mode) || s->st_dev != device) return 0;
	pthread_mutex_lock(&lock);
	for (unsigned i = known_count; i-- > 0 && !found;) found = known[i].inode == s->st_ino;
	pthread_mutex_unlock(&lock);
	return found;
}

static int is_log(const char *name) {
	size_t n = strlen(name);
	return n > 4 && strcmp(name + n - 4, ".log") == 0;
}

/* became notes that a file has a new name: a log that was a spare is written from its
 * beginning. It is called with the lock held. */
static void became(const struct stat *s, const char *from, const char *to) {
	static const char spare[] = "fila-spare-";
	int made = strncmp(from, spare, sizeof spare - 1) == 0 && is_log(to);
	for (unsigned i = 0; i < known_count; i++)
		if (known[i].inode == s->st_ino) { known[i].spare = made; known[i].written = 0; }
	if (made) note("P %lu %ld\n", (unsigned long)s->st_ino, (long)s->st_size);
}

/* longer notes that a log got a hole at its end. It is called with the lock held. */
static void longer(const struct stat *s, off_t size) {
	for (unsigned i = 0; i < known_count; i++)
		if (known[i].inode == s->st_ino) {
			if (!known[i].spare) known[i].written = s->st_size;
			known[i].spare = 1;
		}
	note("L %lu %ld %ld\n", (unsigned long)s->st_ino, (long)s->st_size, (long)size);
}

/* wrote notes how far a log that is written over zeros is written, and returns that, else the size. */
static off_t wrote(const struct stat *s, off_t upto) {
	off_t size = s->st_size;
	pthread_mutex_lock(&lock);
	for (unsigned i = known_count; i-- > 0;)
		if (known[i].inode == s->st_ino && known[i].spare) {
			if (upto > known[i].written) known[i].written = upto;
			size = known[i].written;
			break;
		}
	pthread_mutex_unlock(&lock);
	return size;
}

/* know is called with the lock held. */
static void know(ino_t inode) {
	for (unsigned i = 0; i < known_count; i++)
		if (known[i].inode == inode) return;
	if (known_count == sizeof known / sizeof *known) abort();
	known[known_count++].inode = inode;
}

static void place(void) {
	struct stat s;
	if (!dir_inode && stat(dir, &s) == 0) { dir_inode = s.st_ino; device = s.st_dev; }
}

static int broken(char kind) {
	char c = 0;
	return fault >= 0 && pread(fault, &c, 1, 0) == 1 && c == kind;
}

static int opened(const char *path, int flags, mode_t mode) {
	const char *name = entry(path);
	if (!name || (flags & O_ACCMODE) == O_RDONLY) return real_open(path, flags, mode);
	pthread_mutex_lock(&lock);
	place();
	struct stat s;
	int existed = stat(path, &s) == 0;
	int fd = real_open(path, flags, mode);
	if (fd >= 0 && fstat(fd, &s) == 0) {
		know(s.st_ino);
		if (!existed) note("C %lu %s\n", (unsigned long)s.st_ino, name);
		if (existed && flags & O_TRUNC) note("O %lu 0 0\n", (unsigned long)s.st_ino);
	}
	pthread_mutex_unlock(&lock);
	return fd;
}

static mode_t mode_of(int flags, va_list args) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0; }

int open(const char *path, int flags, ...) {
	va_list args;
	va_start(args, flags);
	mode_t mode = mode_of(flags, args);
	va_end(args);
	return opened(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
	va_list args;
	va_start(args, flags);
	mode_t mode = mode_of(flags, args);
	va_end(args);
	return opened(path, flags, mode);
}

ssize_t write(int fd, const void *p, size_t n) {
	struct stat s;
	if (!watched(fd, &s)) return real_write(fd, p, n);
	if (broken('f')) { errno = ENOSPC; return -1; }
	ssize_t written = real_write(fd, p, n);
	if (written > 0) wrote(&s, lseek(fd, 0, SEEK_CUR));
	return written;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
	struct stat s;
	if (watched(fd, &s)) {
		if (broken('f')) { errno = ENOSPC; return -1; }
		if (at < s.st_size) note("O %lu %ld %ld\n", (unsigned long)s.st_ino, (long)at, (long)s.st_size);
	}
	return real_pwrite(fd, p, n, at);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) { return pwrite(fd, p, n, at); }

int ftruncate(int fd, off_t size) {
	struct stat s;
	if (watched(fd, &s) && size < s.st_size) note("O %lu %ld %ld\n", (unsigned long)s.st_ino, (long)size, (long)s.st_size);
	return real_ftruncate(fd, size);
}

int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int truncate(const char *path, off_t size) {
	const char *name = entry(path);
	if (!name) return real_truncate(path, size);
	pthread_mutex_lock(&lock);
	struct stat s;
	int there = stat(path, &s) == 0, failed = real_truncate(path, size);
	if (there && !failed && size < s.st_size) note("O %lu %ld %ld\n", (unsigned long)s.st_ino, (long)size, (long)s.st_size);
	if (there && !failed && size > s.st_size && is_log(name)) longer(&s, size);
	pthread_mutex_unlock(&lock);
	return failed;
}

int truncate64(const char *path, off_t size) { return truncate(path, size); }

int fallocate(int fd, int mode, off_t at, off_t size) {
	struct stat s;
	if (fault >= 0 && broken('f') && watched(fd, &s)) { errno = ENOSPC; return -1; }
	return real_fallocate(fd, mode, at, size);
}

int fallocate64(int fd, int mode, off_t at, off_t size) { return fallocate(fd, mode, at, size); }

static int synced(int fd, int (*sync)(int)) {
	struct stat s;
	if (!dir || fstat(fd, &s) != 0) return sync(fd);
	int file = watched(fd, &s);
	int directory = dir_inode && s.st_ino == dir_inode && s.st_dev == device;
	if (!file && !directory) return sync(fd);
	if (broken('e')) { errno = EIO; return -1; }
	off_t size = file ? wrote(&s, 0) : 0;
	pthread_mutex_lock(&lock);
	unsigned long number = ++syncs;
	if (directory) note("D %lu\n", number);
	else note("F %lu %lu %ld\n", number, (unsigned long)s.st_ino, (long)size);
	pthread_mutex_unlock(&lock);
	int failed = sync(fd);
	if (!failed) note("S %lu\n", number);
	return failed;
}

int fsync(int fd) { return synced(fd, real_fsync); }
int fdatasync(int fd) { return synced(fd, real_fdatasync); }

/* bury keeps what a name stands for, and returns its inode, 0 if there is nothing.
 * It is called with the lock held. */
static unsigned long bury(const char *path) {
	struct stat s;
	char to[PATH_MAX];
	if (lstat(path, &s) != 0) return 0;
	snprintf(to, sizeof to, "%s/%lu", grave, (unsigned long)s.st_ino);
	if (real_link(path, to) != 0 && errno != EEXIST) abort();
	return s.st_ino;
}

int unlink(const char *path) {
	const char *name = entry(path);
	if (!name) return real_unlink(path);
	pthread_mutex_lock(&lock);
	unsigned long inode = bury(path);
	int failed = real_unlink(path);
	if (!failed) note("U %lu %s\n", inode, name);
	pthread_mutex_unlock(&lock);
	return failed;
}

int rename(const char *from, const char *to) {
	const char *a = entry(from), *b = entry(to);
	if (!a || !b) return real_rename(from, to);
	pthread_mutex_lock(&lock);
	struct stat s;
	bury(to);
	int failed = real_rename(from, to);
	if (!failed && stat(to, &s) == 0) {
		note("R %lu %s %s\n", (unsigned long)s.st_ino, a, b);
		became(&s, a, b);
	}
	pthread_mutex_unlock(&lock);
	return failed;
}

int link(const char *from, const char *to) {
	const char *name = entry(to);
	if (!name) return real_link(from, to);
	pthread_mutex_lock(&lock);
	struct stat s;
	int failed = real_link(from, to);
	if (!failed && stat(to, &s) == 0) { know(s.st_ino); note("C %lu %s\n", (unsigned long)s.st_ino, name); }
	pthread_mutex_unlock(&lock);
	return failed;
}
