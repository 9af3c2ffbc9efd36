/* producer KEY JOB...: enqueues jobs for a tenant, with hiredis.
   cc -o producer producer.c -lhiredis */
#include "fila.h"

int main(int argc, char **argv) {
    const char *queue = setting("FILA_QUEUE", "jobs");
    redisContext *c = fila_connect(5);
    redisReply *r;

    if (!c || argc < 3) return 1;
    r = redisCommand(c, "FILA.QUEUE CREATE %s IFNOTEXISTS", queue);
    if (!r || refused(r, NULL)) {
        fprintf(stderr, "%s\n", r ? r->str : c->errstr);
        return 1;
    }
    freeReplyObject(r);
    for (int i = 2; i < argc; i++) {
        /* %b takes bytes and their number: a payload may hold anything */
        r = redisCommand(c, "FILA.ENQUEUE %s %b KEY %s HEADER from c", queue, argv[i], strlen(argv[i]), argv[1]);
        if (!r || refused(r, NULL)) {
            fprintf(stderr, "%s\n", r ? r->str : c->errstr);
            return 1;
        }
        puts(r->str);
        freeReplyObject(r);
    }
    redisFree(c);
    return 0;
}
