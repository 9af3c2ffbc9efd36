/* worker: does jobs until SIGTERM or Ctrl-C, with hiredis.
   cc -o worker worker.c -lhiredis */
#include "fila.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_MS = 2000 }; /* how long it may take to see that it is to stop */

static const char *queue;
static int lease_ms;
static volatile sig_atomic_t stopping;

static void stop(int s) {
    (void)s;
    stopping = 1;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A lease in hand. The work calls keep() every now and then, which extends it when
   it is time to. */
struct lease {
    redisContext *c;
    const char *receipt;
    double extended;
};

static void keep(struct lease *l) {
    if (now() - l->extended < lease_ms / 3000.0) return;
    freeReplyObject(redisCommand(l->c, "FILA.EXTEND %s %s %d", queue, l->receipt, lease_ms));
    l->extended = now();
}

/* Does a job. Returns NULL, or what is wrong. */
static const char *work(const char *job, struct lease *l) {
    if (strncmp(job, "say ", 4) == 0) {
        puts(job + 4);
        fflush(stdout);
        return NULL;
    }
    if (strncmp(job, "sleep ", 6) == 0) {
        for (double end = now() + atof(job + 6); now() < end; keep(l)) usleep(100 * 1000);
        return NULL;
    }
    job = strchr(job, ' ');
    return job ? job + 1 : "no such job";
}

int main(void) {
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    redisContext *c = NULL;

    queue = setting("FILA_QUEUE", "jobs");
    lease_ms = atoi(setting("FILA_LEASE_MS", "30000"));
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* or a write to a connection that is gone ends the process */
    while (!stopping) {
        redisReply *leased;
        if (!c && !(c = fila_connect(BLOCK_MS / 1000 + 5))) {
            sleep(1);
            continue;
        }
        leased = redisCommand(c, "FILA.LEASE %s BLOCK %d VISIBILITY %d", queue, BLOCK_MS, lease_ms);
        if (!leased) { /* the context is dead */
            if (!stopping) fprintf(stderr, "the broker is away: %s\n", c->errstr);
            redisFree(c);
            c = NULL;
            continue;
        }
        if (refused(leased, NULL)) {
            fprintf(stderr, "%s\n", leased->str);
            if (!refused(leased, "NOQUEUE")) return 1;
            freeReplyObject(leased); /* the queue does not exist yet */
            sleep(1);
            continue;
        }
        for (size_t i = 0; i < leased->elements; i++) {
            redisReply **message = leased->element[i]->element; /* receipt, payload, headers, ... */
            struct lease l = {c, message[0]->str, now()};
            const char *error = work(message[1]->str, &l);
            freeReplyObject(error ? redisCommand(c, "FILA.NACK %s %s ERROR %s", queue, l.receipt, error)
                                  : redisCommand(c, "FILA.ACK %s %s", queue, l.receipt));
        }
        freeReplyObject(leased);
    }
    if (c) redisFree(c);
    return 0;
}
