package metrics

// Kind is what a metric measures.
type Kind uint8

// The kinds, in the words of Prometheus.
const (
	Gauge     Kind = iota // goes up and down
	Counter               // only grows, from 0 at the start of the broker
	Histogram             // of seconds, or of tasks: how many were within each bound
)

func (k Kind) String() string { return [...]string{"gauge", "counter", "histogram"}[k] }

// Prefix begins the names of all metrics but those of the Go runtime and the process.
const Prefix = "fila_"

// Metric describes one metric. The exposition and docs/reference/metrics.md follow from it.
type Metric struct {
	Name   string // without Prefix
	Kind   Kind
	Labels []string
	Help   string // a sentence
	From   string // where a command shows the same figure; empty: only here
}

// Group is metrics that belong together.
type Group struct {
	Title, Text string
	Metrics     []row
}

// row is a metric and the id by which the sources name it.
type row struct {
	id id
	Metric
}

// id names a metric in the code.
type id int

// groups is the table: every metric there is, in the order of the documents.
func groups() []Group {
	return []Group{
		{"Queues", textQueues, append(queueRows(), queueCounterRows()...)},
		{"Fairness keys", textKeys, keyRows()},
		{"Topics", textTopics, topicRows()},
		{"Throttles", textThrottles, throttleRows()},
		{"Budgets", textBudgets, budgetRows()},
		{"Scripts and recurring messages", textScripts, scriptRows()},
		{"Commands", textCommands, commandRows()},
		{"Connections", "", connectionRows()},
		{"Engine", "", engineRows()},
		{"Store and backups", textStore, storeRows()},
		{"Replication", textReplication, replicationRows()},
		{"Broker", textBroker, brokerRows()},
	}
}

// table is groups by id.
func table() [idCount]*Metric {
	var all [idCount]*Metric
	for _, g := range groups() {
		for i := range g.Metrics {
			all[g.Metrics[i].id] = &g.Metrics[i].Metric
		}
	}
	return all
}

// Labels.
const (
	labelQueue    = "queue"
	labelKey      = "key"
	labelState    = "state"
	labelSide     = "side"
	labelReason   = "reason"
	labelOutcome  = "outcome"
	labelThrottle = "throttle"
	labelBudget   = "budget"
	labelHook     = "hook"
	labelCommand  = "command"
	labelCode     = "code"
	labelLevel    = "level"
	labelKind     = "kind"
	labelListener = "listener"
)

const (
	buildInfo id = iota

	queueMessages
	queueKeys
	queueState
	queuesInState
	queueWaiters
	queueOldestReady
	queuePaused
	queueWait
	queueWork
	queueRedriveRunning
	queueRedriveMoved
	queueDeadLettered
	queueEnqueued
	queueDelivered
	queueAcked
	queueNacked
	queueExpired
	queueDropped
	queueReleased
	queueRedriven
	queueCancelled
	queuePurged
	queueDeduplicated
	queueReplaced
	queueTTLExpired
	queueUndelivered
	queueRounds
	queueResults
	queueResultWaits

	keyMessages
	keyOldestReady
	keyShare
	keyFairShare
	keyWeight
	keyThrottled
	keyDelivered

	topics
	topicBindings
	topicPublished
	topicUnmatched
	topicCopies

	throttleTokens
	throttleBurst
	throttleRate
	throttleHeld
	throttleConcurrency
	throttleWaiting
	throttlePassed
	throttleRefused
	throttleWaited
	throttleHeldSeconds
	throttleAdaptive
	throttleCuts

	budgets
	keysWithoutCredit
	budgetBalance
	budgetReserved
	budgetAvailable
	budgetLow
	budgetWaiting
	budgetCredited
	budgetSpent
	budgetRefillDead

	scriptCalls
	scriptRejected
	scriptSeconds
	scriptDuration
	scriptBreakerOpen
	crons
	cronsDead
	cronTicks
	signals
	signalsEvicted

	commandDuration
	commandFailures
	commandRejections
	errorReplies
	slowCommands

	connections
	connectionsLimit
	blockedClients
	subscriptions
	connectionsAccepted
	connectionsRejected
	receivedBytes
	sentBytes
	eventsLost
	authFailures
	aclDenials

	engineTurns
	engineTasks
	engineCommits
	engineRecoveries
	engineTurn
	engineCommit
	engineBatchTasks
	engineInboxTasks
	engineInboxBytes
	engineWindow
	engineBodies
	engineInstances
	engineInstancesEvicted

	storeWritable
	storeBytes
	storeFree
	rocksMemtable
	rocksCache
	rocksPending
	rocksWAL
	rocksLevelFiles
	rocksStopped
	rocksCacheHits
	rocksCacheMisses
	rocksStall
	backupLast
	backups

	clusterLeads
	clusterHasLeader
	clusterMembers
	clusterVoters
	clusterTerm
	clusterFailovers
	clusterApplied
	clusterCommit
	clusterBehind
	clusterLate
	clusterHeard
	clusterLink
	clusterSkew
	clusterWritable
	clusterLog
	clusterSending
	clusterForwarded
	clusterConfirm
	clusterApply

	certificateExpiry
	leftOut
	scrapeSeconds
	tracingSpans

	idCount
)
