/* A hand with hiredis: cc hand.c -o hand -lhiredis */
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGS_MAX = 4096 };

static void hex(char mark, const char *s, size_t n) {
    putchar(mark);
    for (size_t i = 0; i < n; i++) printf("%02x", (unsigned char)s[i]);
}

static void show(const redisReply *r) {
    switch (r->type) {
    case REDIS_REPLY_ERROR: hex('-', r->str, r->len); break;
    case REDIS_REPLY_INTEGER: printf(":%lld", r->integer); break;
    case REDIS_REPLY_NIL: putchar('_'); break;
    case REDIS_REPLY_ARRAY:
        printf("*%zu", r->elements);
        for (size_t i = 0; i < r->elements; i++) putchar(' '), show(r->element[i]);
        break;
    default: hex('$', r->str, r->len);
    }
}

/* Reads the arguments of a line, $ and hexadecimal digits each, in place. */
static int arguments(char *line, const char **argv, size_t *lens) {
    int n = 0;
    for (char *word = strtok(line, " \n"); word && n < ARGS_MAX; word = strtok(NULL, " \n"), n++) {
        size_t len = 0;
        unsigned byte;
        for (char *p = word + 1; sscanf(p, "%2x", &byte) == 1; p += 2) word[len++] = (char)byte;
        argv[n] = word, lens[n] = len;
    }
    return n;
}

int main(void) {
    static const char *argv[ARGS_MAX];
    static size_t lens[ARGS_MAX];
    char *line = NULL;
    size_t size = 0;
    redisContext *c = redisConnect(getenv("FILA_HOST"), atoi(getenv("FILA_PORT")));

    signal(SIGPIPE, SIG_IGN); /* or a write to a connection that is gone ends the process */
    printf("%d.%d.%d\n", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    fflush(stdout);
    while (getline(&line, &size, stdin) > 0) {
        char *rest = strchr(line, ' ');
        long block = line[0] == '-' ? 0 : strtol(line, NULL, 10);
        int argc = arguments(rest, argv, lens);
        redisReply *r = NULL;
        if (c->err) redisReconnect(c); /* a context with an error is dead */
        if (!c->err) {
            /* zero waits for ever; a limit has to be longer than BLOCK */
            struct timeval limit = {line[0] == '-' ? 5 : block ? block / 1000 + 5 : 0, 0};
            redisSetTimeout(c, limit);
            r = redisCommandArgv(c, argc, argv, lens);
        }
        if (r) show(r);
        else hex('!', c->errstr, strlen(c->errstr));
        putchar('\n');
        fflush(stdout);
        freeReplyObject(r);
    }
    redisFree(c);
    return 0;
}
