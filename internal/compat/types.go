package compat

import "strings"

// ReplyTypes returns the reply types of all commands in RESP3, by full name. Each has one of these
// forms:
//
//	status integer string text nil error any     text is a string to be read by people
//	map set push array                           optionally with the types of the elements
//	array of T, array (T, T), T or T             (T or T) if nested
//
// In RESP2 a map or set is an array, a text a string, and a push an array; see shapeOf. A test of
// package commands verifies that the replies in the examples match.
func ReplyTypes() map[string]string {
	const page = "array (string, array of map)"
	const message = "array (string, string, array of string, string, integer, integer, integer, integer, string)"
	const command = "array (string, integer, set of status, integer, integer, integer, set of status, set of string, set of map, (array of array or set))"
	all := map[string]string{
		"acl|cat": "array of string", "acl|dryrun": "status or string", "acl|genpass": "string", "acl|getuser": "map or nil",
		"acl|list": "array of string", "acl|log": "array of map or status", "acl|users": "array of string", "acl|whoami": "string",
		"asking": "error", "client|getname": "string or nil", "client|info": "text", "client|kill": "status or integer",
		"client|list": "text", "client|trackinginfo": "map", "cluster": "error",
		"command": "array of " + command, "command|docs": "map", "command|getkeys": "array of string",
		"command|getkeysandflags": "array of array (string, set of status)", "command|info": "array of (" + command + " or nil)",
		"command|list": "array of string", "config|get": "map", "config|rewrite": "error", "echo": "string", "exec": "array of any",
		"fila.backup": "map", "fila.browse": page, "fila.config|get": "string or nil", "fila.config|list": "array (string, array of string)",
		"fila.cron|get": "map or nil", "fila.cron|list": page, "fila.enqueue": "string", "fila.explain": "map", "fila.get": "map or nil",
		"fila.figures": page, "fila.metrics": "string", "fila.keys": page, "fila.key|get": "map", "fila.lease": "array of " + message, "fila.mlease": "array of " + message,
		"fila.nack": "map", "fila.queue|apply": "array of map", "fila.queue|info": "map", "fila.queue|list": "array of string",
		"fila.script|get": "string or nil", "fila.script|history": "array of map", "fila.script|rollback": "string", "fila.script|list": "array of map", "fila.script|load": "string",
		"fila.script|stats": "array of map", "fila.script|test": "map", "fila.stats": "map", "fila.throttle|get": "map or nil",
		"fila.throttle|list": page, "fila.whoami": "map", "hello": "map", "info": "text", "keys": "array of string",
		"latency|doctor": "text", "latency|graph": "text", "latency|histogram": "map", "latency|history": "array of array (integer, integer)",
		"latency|latest": "array of array (string, integer, integer, integer)", "memory|doctor": "text", "memory|malloc-stats": "text",
		"memory|stats": "map", "memory|usage": "integer or nil", "module|list": "array of map", "object|encoding": "string or nil",
		"object|freq": "nil", "object|idletime": "integer or nil", "object|refcount": "integer or nil", "ping": "status or string",
		"psubscribe": "push (string, string, integer)", "publish": "error", "pubsub|channels": "array of string", "pubsub|numsub": "array of (string or integer)",
		"punsubscribe": "push (string, (string or nil), integer)", "role": "array (string, integer, array)", "scan": "array (string, array of string)",
		"shutdown": "error", "slowlog|get": "array of array (integer, integer, integer, array of string, string, string)",
		"subscribe": "push (string, string, integer)", "time": "array (string, string)", "unsubscribe": "push (string, (string or nil), integer)",
	}
	for kind, names := range map[string]string{
		"status": "acl|load acl|save acl|setuser auth bgsave client|caching client|capa client|no-evict client|no-touch client|reply client|setinfo client|setname " +
			"client|tracking config|resetstat config|set discard fila.config|set fila.cron|set fila.key|pause fila.key|resume fila.key|set fila.queue|alter " +
			"fila.queue|create fila.queue|delete fila.queue|pause fila.queue|resume fila.throttle|set memory|purge monitor multi quit readonly readwrite reset " +
			"select slowlog|reset type",
		"integer": "acl|deluser client|getredir client|id client|unblock command|count dbsize exists fila.ack fila.cancel fila.config|del fila.cron|del " +
			"fila.extend fila.key|del fila.purge fila.redrive fila.release fila.reschedule fila.script|del fila.throttle|del lastsave latency|reset pttl " +
			"pubsub|numpat slowlog|len ttl wait",
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = kind
		}
	}
	return all
}

// ReplyType returns the reply type of a command, or "" if it is unknown.
func ReplyType(name string) string {
	if strings.HasSuffix(name, "|help") {
		return "array of status"
	}
	return ReplyTypes()[name]
}

// shape describes a reply in RESP2 and in RESP3.
type shape struct{ two, three string }

func (s shape) String() string {
	if s.two == s.three {
		return s.two
	}
	return s.two + "; RESP3: " + s.three
}

// shapeOf returns the shape of a type.
func shapeOf(kind string) shape {
	const pairs = "array of field, value, ..."
	return shape{three: kind, two: strings.NewReplacer("map", pairs, "set", "array", "push", "array", "text", "string").Replace(kind)}
}
