package metrics

const textQueues = "`admin.metrics_queues` queues have figures by name: those that came first. A queue keeps its name until it is deleted; one that " +
	"gets a name later counts from then on. All others together are `queue=\"\"`, which only users see that have the right to every queue. " +
	"A queue that is deleted and created again goes on counting if no scrape came between, else it begins at 0."

func queueRows() []row {
	q := []string{labelQueue}
	return []row{
		{queueMessages, Metric{
			"queue_messages", Gauge, []string{labelQueue, labelState},
			"Messages in a queue, by state: ready, delayed, leased or dead. After a start they are too low until the store has been counted.", "`FILA.STATS`: `ready`, `delayed`, `leased`, `dead`",
		}},
		{queueKeys, Metric{
			"queue_keys", Gauge, []string{labelQueue, labelState},
			"Fairness keys with messages, by state: what keeps each of them from delivering. It is a few seconds old, see admin.figures_ms.", "`FILA.KEYS`: `state`",
		}},
		{queueState, Metric{
			"queue_state", Gauge, []string{labelQueue, labelState},
			"The state of a queue, that of its ready messages: 1 for the one that it has, and no series of the others. It is a few seconds old, see admin.figures_ms.", "`FILA.STATS`: `state`",
		}},
		{queuesInState, Metric{
			"queues", Gauge, []string{labelState},
			"Queues by state, also those without series of their own. A user without the right to every queue sees the number of those that have series.", "`FILA.FIGURES`: `state`",
		}},
		{queueWaiters, Metric{"queue_waiters", Gauge, q, "Consumers that wait for messages of a queue.", "`FILA.STATS`: `waiters`"}},
		{queueResultWaits, Metric{"queue_result_waits", Gauge, q, "Requests that wait for the result of a message.", "`FILA.STATS`: `result_waits`"}},
		{queueOldestReady, Metric{
			"queue_oldest_ready_seconds", Gauge, q,
			"How long the message is ready that has been ready longest, 0 without one. It is a few seconds old, see admin.figures_ms.", "`FILA.STATS`: `oldest_ms`",
		}},
		{queuePaused, Metric{"queue_paused", Gauge, []string{labelQueue, labelSide}, "Whether intake (in) or delivery (out) of a queue is paused: 1 or 0.", "`FILA.QUEUE INFO`"}},
		{queueWait, Metric{"queue_wait_seconds", Histogram, q, "Time from a message being ready to its delivery.", ""}},
		{queueWork, Metric{
			"queue_work_seconds", Histogram, []string{labelQueue, labelOutcome},
			"Time from a delivery to the end of its lease, by outcome: acked, nacked, expired or released.", "",
		}},
		{queueRedriveRunning, Metric{"queue_redrive_running", Gauge, q, "Whether a redrive of a dead-letter queue runs: 1 or 0.", "`FILA.STATS`: `redrive_running`"}},
		{queueRedriveMoved, Metric{"queue_redrive_moved_total", Counter, q, "Messages that redrives have moved out of a dead-letter queue. Other queues have no such series.", "`FILA.STATS`: `redriven`"}},
	}
}

func queueCounterRows() []row {
	q := []string{labelQueue}
	counter := func(id id, name, help, field string) row {
		return row{id, Metric{"queue_messages_" + name + "_total", Counter, q, help, "`FILA.STATS`: `" + field + "`"}}
	}
	return []row{
		counter(queueEnqueued, "enqueued", "Messages that were enqueued.", "enqueued"),
		counter(queueDelivered, "delivered", "Deliveries, also those that were taken back.", "delivered"),
		counter(queueAcked, "acked", "Leases that ended with an ack.", "acked"),
		counter(queueNacked, "nacked", "Leases that ended with a nack.", "nacked"),
		counter(queueExpired, "expired", "Leases whose visibility timeout passed.", "expired"),
		{queueDeadLettered, Metric{
			"queue_messages_dead_lettered_total", Counter, []string{labelQueue, labelReason},
			"Messages moved to the dead-letter queue, by reason: attempts, nack, on_failure or ttl.", "`FILA.STATS`: `dead_lettered`",
		}},
		counter(queueDropped, "dropped", "Dead messages of a queue without a dead-letter queue: they are gone.", "dropped"),
		counter(queueReleased, "released", "Leases that were released.", "released"),
		counter(queueRedriven, "redriven", "Messages moved out of a dead-letter queue by redrives.", "redriven"),
		counter(queueCancelled, "cancelled", "Messages that were cancelled.", "cancelled"),
		counter(queuePurged, "purged", "Messages that were purged.", "purged"),
		counter(queueDeduplicated, "deduplicated", "Enqueues that gave no message, because one with their deduplication id or unique id existed.", "deduplicated"),
		counter(queueReplaced, "replaced", "Messages whose place another one with their unique id has taken. These are no enqueued ones.", "replaced"),
		counter(queueTTLExpired, "ttl_expired", "Messages whose time to live passed.", "ttl_expired"),
		counter(queueUndelivered, "undelivered", "Deliveries taken back because their reply did not reach the client.", "undelivered"),
		{queueResults, Metric{"queue_results_total", Counter, q, "Results that were stored with acks.", "`FILA.STATS`: `results`"}},
		{queueRounds, Metric{"queue_rounds_total", Counter, q, "Rounds of the scheduler: in each, every key that can deliver has its share.", ""}},
	}
}

const textKeys = "Of each queue with a name, `admin.metrics_keys` fairness keys have figures: the deepest, the oldest, the busiest and those furthest behind " +
	"their fair share take turns in filling the places. A key stays for at least ten minutes, so that a place does not become another series at each scrape. " +
	"All queues together have places for 1,000 keys. There is no series of the other keys: `fila_queue_messages - sum by (queue) (fila_key_messages)` is it.\n\n" +
	"A fairness key is often the name of a tenant, which may be personal data in what stores the metrics: `admin.metrics_keys = 0` shows none."

func keyRows() []row {
	k := []string{labelQueue, labelKey}
	return []row{
		{keyMessages, Metric{"key_messages", Gauge, k, "Messages of a fairness key, of any state.", "`FILA.KEYS`: `depth`"}},
		{keyOldestReady, Metric{"key_oldest_ready_seconds", Gauge, k, "Time since the first ready message of a fairness key was enqueued, 0 without one in memory.", "`FILA.KEYS`: `oldest_ms`"}},
		{keyShare, Metric{"key_share_ratio", Gauge, k, "Part of the cost that the queue has delivered in about the last minute.", "`FILA.KEYS`: `share`"}},
		{keyFairShare, Metric{"key_fair_share_ratio", Gauge, k, "Part of the weights of the keys that can deliver, 0 for a key that cannot.", "`FILA.KEYS`: `fair_share`"}},
		{keyWeight, Metric{"key_weight", Gauge, k, "Weight of a fairness key.", "`FILA.KEYS`: `weight`"}},
		{keyThrottled, Metric{"key_throttled", Gauge, k, "Whether throttles keep a fairness key from delivering: 1 or 0.", "`FILA.KEYS`: `state`"}},
		{keyDelivered, Metric{"key_messages_delivered_total", Counter, k, "Deliveries of a fairness key.", "`FILA.KEYS`: `delivered`"}},
	}
}

const textTopics = "Of all topics together: there may be many, and `FILA.TOPIC LIST` has the figures of each."

func topicRows() []row {
	return []row{
		{topics, Metric{"topics", Gauge, nil, "Topics, each of which has a binding.", "`FILA.STATS`: `topics`"}},
		{topicBindings, Metric{"topic_bindings", Gauge, nil, "Bindings of queues to topics.", "`FILA.STATS`: `bindings`"}},
		{topicPublished, Metric{"topic_messages_published_total", Counter, nil, "Messages that were published, also those that met no binding.", "`FILA.STATS`: `published`"}},
		{topicUnmatched, Metric{"topic_messages_unmatched_total", Counter, nil, "Published messages that met no binding: no queue has got them.", "`FILA.STATS`: `unmatched`"}},
		{topicCopies, Metric{"topic_copies_total", Counter, nil, "Messages that queues have stored of those that were published.", "`FILA.STATS`: `copies`"}},
	}
}

const textThrottles = "`admin.metrics_throttles` throttles and patterns have figures: those with most keys waiting. Those of a pattern are the sums over its " +
	"throttles, its tokens those of a new one. Of the throttles of patterns as many have figures as well: those with most deliveries and those for which keys have waited " +
	"longest take turns in filling the places. A throttle stays for at least ten minutes."

func throttleRows() []row {
	t := []string{labelThrottle}
	return []row{
		{throttleTokens, Metric{"throttle_tokens", Gauge, t, "Tokens in the bucket: deliveries that may happen at once, or their cost; below 0 in debt.", "`FILA.THROTTLE GET`: `tokens`"}},
		{throttleBurst, Metric{"throttle_burst_tokens", Gauge, t, "Capacity of the bucket.", "`FILA.THROTTLE GET`: `burst`"}},
		{throttleRate, Metric{"throttle_rate", Gauge, t, "Tokens a second, 0 if the rate is not limited.", "`FILA.THROTTLE GET`: `rate`"}},
		{throttleHeld, Metric{"throttle_held_leases", Gauge, t, "Live leases that name the throttle.", "`FILA.THROTTLE GET`: `held`"}},
		{throttleConcurrency, Metric{"throttle_concurrency_limit", Gauge, t, "Live leases that are allowed, 0 if they are not limited.", "`FILA.THROTTLE GET`: `concurrency`"}},
		{throttleWaiting, Metric{"throttle_waiting_keys", Gauge, t, "Fairness keys that could deliver if the throttle had room.", "`FILA.THROTTLE GET`: `waiting`"}},
		{throttlePassed, Metric{"throttle_passed_total", Counter, t, "Deliveries that the throttle admitted.", "`FILA.THROTTLE GET`: `passed`"}},
		{throttleRefused, Metric{"throttle_refused_total", Counter, t, "Times that the throttle stopped keys.", "`FILA.THROTTLE GET`: `refused`"}},
		{throttleWaited, Metric{"throttle_wait_seconds_total", Counter, t, "Time that keys have waited for the throttle, all together.", "`FILA.THROTTLE GET`: `waited_ms`"}},
		{throttleHeldSeconds, Metric{"throttle_hold_seconds", Gauge, t, "Time until the end of the hold of a throttle, 0 if it is not held.", "`FILA.THROTTLE GET`: `held_until`"}},
		{throttleAdaptive, Metric{"throttle_adaptive_limit", Gauge, t, "Live leases that an adaptive throttle allows now, of which the whole part counts.", "`FILA.THROTTLE GET`: `limit`"}},
		{throttleCuts, Metric{"throttle_cuts_total", Counter, t, "Failures that have cut the limit of an adaptive throttle.", "`FILA.THROTTLE GET`: `cuts`"}},
	}
}

const textBudgets = "`admin.metrics_budgets` budgets have figures: those with most keys waiting, and the oldest. A budget stays for at least ten minutes. " +
	"A scrape computes the refills of these alone. A budget often has the name of a customer, which may be personal data in what stores the metrics: " +
	"`admin.metrics_budgets = 0` shows none."

func budgetRows() []row {
	b := []string{labelBudget}
	return []row{
		{budgets, Metric{"budgets", Gauge, nil, "Budgets.", "`FILA.STATS`: `budgets`"}},
		{keysWithoutCredit, Metric{
			"keys_without_credit", Gauge, nil,
			"Fairness keys that have come up and that a budget did not cover, of all queues.", "`FILA.STATS`: `keys_without_credit`",
		}},
		{budgetBalance, Metric{"budget_balance_credits", Gauge, b, "What came in less what went out; below 0 in debt.", "`FILA.BUDGET GET`: `balance`"}},
		{budgetReserved, Metric{"budget_reserved_credits", Gauge, b, "What live leases hold.", "`FILA.BUDGET GET`: `reserved`"}},
		{budgetAvailable, Metric{"budget_available_credits", Gauge, b, "The balance less what is reserved: what the next delivery may take.", "`FILA.BUDGET GET`: `available`"}},
		{budgetLow, Metric{"budget_low_credits", Gauge, b, "The balance below which it is low. Absent: none is set.", "`FILA.BUDGET GET`: `low`"}},
		{budgetWaiting, Metric{"budget_waiting_keys", Gauge, b, "Fairness keys that have come up and that the budget did not cover.", "`FILA.BUDGET GET`: `waiting`"}},
		{budgetCredited, Metric{"budget_credited_total", Counter, b, "Credits that came in, also those before the start of the broker.", "`FILA.BUDGET GET`: `credited`"}},
		{budgetSpent, Metric{"budget_spent_total", Counter, b, "Credits that went out, also those before the start of the broker.", "`FILA.BUDGET GET`: `spent`"}},
		{budgetRefillDead, Metric{"budget_refill_without_next_tick", Gauge, b, "Whether the refill never ticks again, as its time zone is gone: 1 or 0. Absent: there is none.", "`FILA.BUDGET GET`: `refill_error`"}},
	}
}

const textScripts = "Of the hooks of queues that have a name here, and of all recurring messages together."

func scriptRows() []row {
	s := []string{labelQueue, labelHook}
	return []row{
		{scriptCalls, Metric{
			"script_calls_total", Counter, []string{labelQueue, labelHook, labelOutcome},
			"Decisions of a hook by outcome: ok, error, limit (an error for time or memory), recalled (known without a run) or skipped (the breaker was open).", "`FILA.SCRIPT STATS`",
		}},
		{scriptRejected, Metric{
			"script_decisions_rejected_total", Counter, s,
			"Decisions of calls that went well (ok or recalled) that could not be applied: a delay beyond the time to live of the message.", "`FILA.SCRIPT STATS`: `rejected`",
		}},
		{scriptSeconds, Metric{"script_seconds_total", Counter, s, "Time in runs of a hook.", "`FILA.SCRIPT STATS`: `total_us`"}},
		{scriptDuration, Metric{"script_duration_seconds", Histogram, s, "Time until a hook has decided, 0 for decisions that were recalled.", "`FILA.SCRIPT STATS`: `latency`, `p99_us`"}},
		{scriptBreakerOpen, Metric{"script_breaker_open", Gauge, s, "Whether the hook is not run as it has failed too often in a row: 1 or 0.", "`FILA.SCRIPT STATS`: `state`"}},
		{crons, Metric{"crons", Gauge, nil, "Recurring messages that are set.", "`FILA.CRON LIST`"}},
		{cronsDead, Metric{"crons_without_next_tick", Gauge, nil, "Recurring messages that never tick again: their time zone is gone.", "`FILA.CRON LIST`: `next_at`, `last_error`"}},
		{cronTicks, Metric{
			"cron_ticks_total", Counter, []string{labelOutcome},
			"Ticks of recurring messages: enqueued, missed (passed while the broker was down or busy) or failed.", "`FILA.CRON LIST`",
		}},
		{signals, Metric{"signals", Gauge, nil, "Signals: pairs of subject and name.", "`FILA.STATS`: `signals`"}},
		{signalsEvicted, Metric{"signals_evicted_total", Counter, nil, "Signals that made room for others at `limits.signals`.", "`FILA.STATS`: `signals_evicted`"}},
	}
}
