package commands

import (
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/queueset"
)

// Aliases of the types of package command, which every description here uses.
type (
	// Spec describes a command.
	Spec = command.Spec[*Session, call]
	// Arg is an argument in a description.
	Arg = command.Arg
	// Example is a command and its reply, as redis-cli shows them.
	Example = command.Example

	entry = command.Command[*Session, call] // a Spec, compiled
	input = command.Input
)

// Types of arguments, and rights to queues.
const (
	Key       = command.Key
	String    = command.String
	Integer   = command.Integer
	Double    = command.Double
	Pattern   = command.Pattern
	PureToken = command.PureToken
	OneOf     = command.OneOf
	Block     = command.Block

	ByFlags       = command.ByFlags
	Consume       = command.Consume
	Produce       = command.Produce
	Look          = command.Look
	Listen        = command.Listen
	ListenPattern = command.ListenPattern

	countLimit = command.CountLimit
)

// pageOfMaps is the type of a page of maps, with the cursor of the next one before it.
const pageOfMaps = "array (string, array of map)"

// millisMax bounds every duration in milliseconds that a client may pass: about a hundred years,
// so that its sum with the current time does not overflow.
const millisMax = queueset.MillisMax

// table lists all commands by the file that describes them. A new command is a row here, and code
// in the file of its family or in a file of its own.
func table() []Spec { return append(filaCommands(), redisCommands()...) }

// filaCommands are Fila's own commands, and those of Redis that are aliases of one.
func filaCommands() []Spec {
	return []Spec{
		// enqueue.go
		enqueue(),

		// lease.go
		lease(),
		mlease(),
		waiters(),

		// ack.go
		ack(),
		extend(),
		nack(),
		release(),

		// result.go
		result(),

		// browse.go
		browse(),

		// message.go
		cancel(),
		get(),
		redrive(),
		reschedule(),

		// queue.go
		pastOfQueues(), // FILA.HISTORY
		purge(),
		queue(),

		// key.go
		key(),
		keys(),

		// figures.go
		figures(),

		// stats.go
		explain(),
		metricsCommand(),
		stats(),

		// throttle.go
		throttle(),

		// budget.go
		budget(),

		// topic.go
		publishMessage(), // FILA.PUBLISH
		topic(),

		// group.go
		groups(), // FILA.GROUP

		// cron.go
		cron(),

		// script.go
		script(),

		// script_values.go
		configValues(), // FILA.CONFIG
		signal(),

		// acl.go
		whoAmI(),

		// audit.go
		auditList(),

		// fila_cluster.go
		filaCluster(),

		// server.go
		bgsave(),
		backup(),
		lastsave(),
	}
}

// redisCommands are the commands that work as in Redis.
func redisCommands() []Spec {
	return []Spec{
		// transaction.go
		discard(),
		exec(),
		multi(),

		// subscribe.go
		monitor(),
		psubscribe(),
		publish(),
		pubsub(),
		punsubscribe(),
		subscribe(),
		unsubscribe(),

		// connection.go
		auth(),
		echo(),
		hello(),
		ping(),
		quit(),
		reset(),
		selectDB(), // SELECT

		// client.go
		client(),

		// acl.go
		aclCommands(), // ACL

		// command.go
		commandTable(), // COMMAND

		// config.go
		config(),

		// info.go
		info(),

		// browse.go
		dbsize(),
		exists(),
		matchingQueues(), // KEYS
		object(),
		timeToLive("PTTL", "2.6.0"),
		scanQueues(), // SCAN
		timeToLive("TTL", "1.0.0"),
		keyType(), // TYPE

		// latency.go
		latency(),
		slowlogCommand(), // SLOWLOG

		// memory.go
		memory(),

		// server.go
		module(),
		shutdown(),
		timeNow(), // TIME

		// mode.go
		asking(),
		cluster(),
		readonly(),
		readwrite(),
		sentinel(),

		// replication.go
		role(),
		wait(),
	}
}

// Describe returns the descriptions of all commands, for documents.
func Describe() []command.Description { return command.New(table()).Describe() }
