/* What the examples with hiredis share, to be copied. */
#ifndef FILA_H
#define FILA_H

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

/* Connects; the calls of the context take so many seconds at most: longer than
   BLOCK. Returns NULL, and says why, if there is no broker. */
static inline redisContext *fila_connect(int seconds) {
    redisContext *c = redisConnect(setting("FILA_HOST", "127.0.0.1"), atoi(setting("FILA_PORT", "5555")));
    if (c && !c->err) {
        redisSetTimeout(c, (struct timeval){seconds, 0});
        return c;
    }
    fprintf(stderr, "the broker is away: %s\n", c ? c->errstr : "no memory");
    if (c) redisFree(c);
    return NULL;
}

/* Tells whether a reply is the broker's error with that code, or with any if code
   is NULL. */
static inline int refused(const redisReply *r, const char *code) {
    if (!r || r->type != REDIS_REPLY_ERROR) return 0;
    return !code || (strncmp(r->str, code, strlen(code)) == 0 && r->str[strlen(code)] == ' ');
}

#endif
