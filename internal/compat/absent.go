package compat

// Absence is why Fila does not have some of Redis' commands. They answer unknown
// command, which is what client libraries look for.
type Absence struct {
	Commands []string // lower case; "client|pause" for a subcommand
	Later    bool     // not yet: planned
	Reason   string
}

// Absent is every command of Redis 7.0 that Fila does not have. A container
// stands for its subcommands.
func Absent() []Absence {
	return append(absentForNow(), absentForGood()...)
}

func absentForNow() []Absence {
	return []Absence{
		{[]string{"replicaof", "slaveof", "psync", "sync", "replconf", "failover", "restore-asking"}, true, "There is no replication."},
	}
}

func absentForGood() []Absence {
	const noValues = "Fila keeps messages in queues, not values under keys."
	return []Absence{
		{[]string{
			"append", "decr", "decrby", "get", "getdel", "getex", "getrange", "getset", "incr", "incrby", "incrbyfloat", "lcs", "mget", "mset",
			"msetnx", "psetex", "set", "setex", "setnx", "setrange", "strlen", "substr",
		}, false, noValues},
		{[]string{"bitcount", "bitfield", "bitfield_ro", "bitop", "bitpos", "getbit", "setbit"}, false, noValues},
		{[]string{
			"hdel", "hexists", "hget", "hgetall", "hincrby", "hincrbyfloat", "hkeys", "hlen", "hmget", "hmset", "hrandfield", "hscan", "hset",
			"hsetnx", "hstrlen", "hvals",
		}, false, noValues},
		{[]string{
			"sadd", "scard", "sdiff", "sdiffstore", "sinter", "sintercard", "sinterstore", "sismember", "smembers", "smismember", "smove", "spop",
			"srandmember", "srem", "sscan", "sunion", "sunionstore",
		}, false, noValues},
		{[]string{
			"bzmpop", "bzpopmax", "bzpopmin", "zadd", "zcard", "zcount", "zdiff", "zdiffstore", "zincrby", "zinter", "zintercard", "zinterstore",
			"zlexcount", "zmpop", "zmscore", "zpopmax", "zpopmin", "zrandmember", "zrange", "zrangebylex", "zrangebyscore", "zrangestore", "zrank",
			"zrem", "zremrangebylex", "zremrangebyrank", "zremrangebyscore", "zrevrange", "zrevrangebylex", "zrevrangebyscore", "zrevrank", "zscan",
			"zscore", "zunion", "zunionstore",
		}, false, noValues},
		{[]string{
			"geoadd", "geodist", "geohash", "geopos", "georadius", "georadius_ro", "georadiusbymember", "georadiusbymember_ro", "geosearch",
			"geosearchstore",
		}, false, noValues},
		{[]string{"pfadd", "pfcount", "pfdebug", "pfmerge", "pfselftest"}, false, noValues},
		{[]string{
			"blmove", "blmpop", "blpop", "brpop", "brpoplpush", "lindex", "linsert", "llen", "lmove", "lmpop", "lpop", "lpos", "lpush", "lpushx",
			"lrange", "lrem", "lset", "ltrim", "rpop", "rpoplpush", "rpush", "rpushx",
		}, false, "A list used as a queue loses what its worker had in hand: use FILA.ENQUEUE, FILA.LEASE and FILA.ACK."},
		{[]string{
			"xack", "xadd", "xautoclaim", "xclaim", "xdel", "xgroup", "xinfo", "xlen", "xpending", "xrange", "xread", "xreadgroup", "xrevrange",
			"xsetid", "xtrim",
		}, false, "FILA.ENQUEUE, FILA.LEASE and FILA.ACK do what consumer groups are for; a message belongs to one queue and is gone when it is done."},
		{[]string{
			"copy", "del", "dump", "expire", "expireat", "expiretime", "migrate", "move", "persist", "pexpire", "pexpireat", "pexpiretime",
			"randomkey", "rename", "renamenx", "restore", "sort", "sort_ro", "touch", "unlink",
		}, false, "A queue is made, changed and deleted by FILA.QUEUE, never in passing."},
		{[]string{"eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro", "function", "script"}, false,
			"Scripts would stop the loop for all clients; Fila's belong to a queue, are bounded and run off the loop."},
		{[]string{"spublish", "ssubscribe", "sunsubscribe", "pubsub|shardchannels", "pubsub|shardnumsub"}, false, "There are no shards, so channels of one are channels of all."},
		{[]string{"watch", "unwatch"}, false, "There are no values whose change could be watched for."},
		{[]string{"flushall", "flushdb", "swapdb"}, false, "No single command drops everything: FILA.QUEUE DELETE with FORCE deletes one queue."},
		{[]string{"save", "bgrewriteaof"}, false, "Every acknowledged write is stored already, and the store tidies up by itself."},
		{[]string{"client|pause", "client|unpause"}, false, "A queue is paused, not all connections: FILA.QUEUE PAUSE, for enqueues, deliveries or both."},
		{[]string{"module|load", "module|loadex", "module|unload"}, false, "There are no modules."},
		{[]string{"debug", "lolwut"}, false, "Not for a broker in use."},
	}
}
