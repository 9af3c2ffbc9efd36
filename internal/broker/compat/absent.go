package compat

// Absence is the reason why Fila lacks some of Redis' commands. They return an unknown command
// error, by which client libraries detect them.
type Absence struct {
	Commands []string // lower case; "client|pause" for a subcommand
	Later    bool     // planned
	Reason   string
}

// Absent lists every command of Redis 7.0 that Fila lacks. A container stands for its subcommands.
func Absent() []Absence {
	return append(absentForNow(), absentForGood()...)
}

func absentForNow() []Absence {
	return []Absence{
		{[]string{"replicaof", "slaveof", "psync", "sync", "replconf", "failover", "restore-asking"}, false, "Nodes of a cluster replicate by a protocol and on a port of their own."},
		{[]string{
			"cluster|addslots", "cluster|addslotsrange", "cluster|bumpepoch", "cluster|delslots", "cluster|delslotsrange", "cluster|failover", "cluster|flushslots",
			"cluster|forget", "cluster|meet", "cluster|replicate", "cluster|reset", "cluster|saveconfig", "cluster|set-config-epoch", "cluster|setslot",
		}, false, "The leader has all slots, and the configuration says which nodes there are."},
		{[]string{"cluster|count-failure-reports", "cluster|countkeysinslot", "cluster|getkeysinslot", "cluster|links", "cluster|replicas", "cluster|slaves"}, false, "CLUSTER NODES describes all nodes; KEYS lists the queues."},
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
		}, false, "A list used as a queue loses the element that a failing worker has popped; use FILA.ENQUEUE, FILA.LEASE and FILA.ACK."},
		{[]string{
			"xack", "xadd", "xautoclaim", "xclaim", "xdel", "xgroup", "xinfo", "xlen", "xpending", "xrange", "xread", "xreadgroup", "xrevrange",
			"xsetid", "xtrim",
		}, false, "FILA.ENQUEUE, FILA.LEASE and FILA.ACK serve the purpose of consumer groups; a message belongs to one queue and is deleted when it is acked."},
		{[]string{
			"copy", "del", "dump", "expire", "expireat", "expiretime", "migrate", "move", "persist", "pexpire", "pexpireat", "pexpiretime",
			"randomkey", "rename", "renamenx", "restore", "sort", "sort_ro", "touch", "unlink",
		}, false, "Queues are created, changed and deleted only explicitly, by FILA.QUEUE."},
		{[]string{"eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro", "function", "script"}, false,
			"Such scripts would block the loop for all clients; Fila's scripts belong to a queue, are bounded and run off the loop."},
		{[]string{"spublish", "ssubscribe", "sunsubscribe", "pubsub|shardchannels", "pubsub|shardnumsub"}, false, "Fila has no shards, hence no sharded channels."},
		{[]string{"watch", "unwatch"}, false, "Fila has no values to watch."},
		{[]string{"flushall", "flushdb", "swapdb"}, false, "No single command drops everything: FILA.QUEUE DELETE with FORCE deletes one queue."},
		{[]string{"save", "bgrewriteaof"}, false, "Every acknowledged write is stored already, and the store compacts itself."},
		{[]string{"client|pause", "client|unpause"}, false, "FILA.QUEUE PAUSE pauses a single queue: enqueues, deliveries or both."},
		{[]string{"module|load", "module|loadex", "module|unload"}, false, "There are no modules."},
		{[]string{"client|getredir", "client|trackinginfo"}, false, "CLIENT TRACKING has no effect: no reply is cacheable."},
		{[]string{"command|getkeysandflags"}, false, "COMMAND GETKEYS names the queues, COMMAND INFO says what a command does to them."},
		{[]string{"latency|graph"}, false, "LATENCY HISTORY has its figures, and the dashboard draws them."},
		{[]string{"memory|doctor", "memory|malloc-stats", "memory|purge", "memory|stats"}, false, "INFO memory and FILA.STATS say what takes memory, and the broker gives back what it does not use."},
		{[]string{"object|freq", "object|idletime", "object|refcount"}, false, "Nothing is evicted, so the uses of a queue are not kept."},
		{[]string{"debug", "lolwut"}, false, "Not useful in a broker."},
	}
}
