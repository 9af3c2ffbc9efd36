package metrics

const textCommands = "Commands and error codes are closed lists. A command has series once it was called. `CONFIG RESETSTAT` does not reset them."

func commandRows() []row {
	c := []string{labelCommand}
	return []row{
		{commandDuration, Metric{
			"command_duration_seconds", Histogram, c,
			"Time from the bytes of a command being read until its reply may leave, without waiting for messages.", "`LATENCY HISTOGRAM`, `INFO commandstats`: `calls`",
		}},
		{commandFailures, Metric{"command_failures_total", Counter, c, "Commands that were executed and answered an error.", "`INFO commandstats`: `failed_calls`"}},
		{commandRejections, Metric{"command_rejections_total", Counter, c, "Commands that were refused before they were executed.", "`INFO commandstats`: `rejected_calls`"}},
		{errorReplies, Metric{"error_replies_total", Counter, []string{labelCode}, "Error replies by code.", "`INFO errorstats`"}},
		{slowCommands, Metric{"slow_commands_total", Counter, c, "Commands that took as long as slowlog.slower_than_us.", "`SLOWLOG`"}},
	}
}

func connectionRows() []row {
	return []row{
		{connections, Metric{"connections", Gauge, nil, "Clients that are connected.", "`INFO clients`: `connected_clients`"}},
		{connectionsLimit, Metric{"connections_limit", Gauge, nil, "Clients that may be connected: server.maxclients.", "`INFO clients`: `maxclients`"}},
		{blockedClients, Metric{"blocked_clients", Gauge, nil, "Clients that wait: for messages, a read or a script.", "`FILA.STATS`: `blocked_clients`"}},
		{subscriptions, Metric{"subscriptions", Gauge, nil, "Channels and patterns with subscribers.", "`INFO stats`: `pubsub_channels`, `pubsub_patterns`"}},
		{connectionsAccepted, Metric{"connections_accepted_total", Counter, nil, "Connections that were accepted.", "`INFO stats`: `total_connections_received`"}},
		{connectionsRejected, Metric{"connections_rejected_total", Counter, nil, "Connections that were refused or closed because there were too many.", "`INFO stats`: `rejected_connections`"}},
		{receivedBytes, Metric{"received_bytes_total", Counter, nil, "Bytes received from clients.", "`INFO stats`: `total_net_input_bytes`"}},
		{sentBytes, Metric{"sent_bytes_total", Counter, nil, "Bytes sent to clients.", "`INFO stats`: `total_net_output_bytes`"}},
		{eventsLost, Metric{"events_lost_total", Counter, nil, "Events that no subscriber got because too many were waiting.", ""}},
		{authFailures, Metric{"auth_failures_total", Counter, nil, "Attempts to authenticate that failed.", ""}},
		{aclDenials, Metric{"acl_denials_total", Counter, []string{labelReason}, "Commands that a user had no right to, by reason: command, key (a queue) or channel.", "`ACL LOG`"}},
	}
}

func engineRows() []row {
	return []row{
		{engineTurns, Metric{"engine_turns_total", Counter, nil, "Turns of the engine's loop.", "`FILA.STATS`: `turns`"}},
		{engineTasks, Metric{"engine_tasks_total", Counter, nil, "Tasks that turns have applied.", "`FILA.STATS`: `tasks`"}},
		{engineCommits, Metric{"engine_commits_total", Counter, nil, "Batches that were committed.", "`FILA.STATS`: `commits`"}},
		{engineRecoveries, Metric{"engine_recoveries_total", Counter, nil, "Recoveries in place, after failed commits.", "`FILA.STATS`: `recoveries`"}},
		{engineTurn, Metric{"engine_turn_seconds", Histogram, nil, "Time of a turn: no other client is served meanwhile.", "`LATENCY HISTORY turn`"}},
		{engineCommit, Metric{"engine_commit_seconds", Histogram, nil, "Time of a commit, with its fsync.", "`LATENCY HISTORY commit`"}},
		{engineBatchTasks, Metric{"engine_batch_tasks", Histogram, nil, "Tasks that became durable with one commit.", ""}},
		{engineInboxTasks, Metric{"engine_inbox_tasks", Gauge, nil, "Tasks that wait for a turn.", ""}},
		{engineInboxBytes, Metric{"engine_inbox_bytes", Gauge, nil, "Bytes of the input of these tasks.", ""}},
		{engineWindow, Metric{"engine_window_messages", Gauge, nil, "Messages in head caches.", "`FILA.STATS`: `messages_in_memory`"}},
		{engineBodies, Metric{"engine_body_bytes", Gauge, nil, "Payloads and headers in memory.", "`FILA.STATS`: `body_bytes`"}},
		{engineInstances, Metric{"throttle_instances", Gauge, nil, "Throttles of patterns in memory.", "`FILA.THROTTLE GET` of patterns: `instances`"}},
		{engineInstancesEvicted, Metric{"throttle_instances_evicted_total", Counter, nil, "Throttles of patterns that were forgotten before their buckets were full, because there were more than `limits.throttle_instances`.", ""}},
	}
}

const textStore = "The figures of RocksDB are read at the scrape, never by the engine's loop. A store in memory has none of them."

func storeRows() []row {
	return []row{
		{storeWritable, Metric{"store_writable", Gauge, nil, "Whether the store takes writes: 1 or 0.", "`FILA.STATS`: `writable`"}},
		{storeBytes, Metric{"store_bytes", Gauge, nil, "Space that the store takes on disk.", "`INFO persistence`: `store_bytes`"}},
		{storeFree, Metric{"store_free_bytes", Gauge, nil, "Space that is free on the disk of the store.", "`INFO persistence`: `store_free_bytes`"}},
		{rocksMemtable, Metric{"rocksdb_memtable_bytes", Gauge, nil, "Memtables that are not flushed.", ""}},
		{rocksCache, Metric{"rocksdb_block_cache_bytes", Gauge, nil, "Used bytes of the block cache.", ""}},
		{rocksPending, Metric{"rocksdb_pending_compaction_bytes", Gauge, nil, "Estimate of what compactions have yet to rewrite.", ""}},
		{rocksWAL, Metric{"rocksdb_wal_bytes", Gauge, nil, "Logs of commits that are kept: what is not in tables yet.", ""}},
		{rocksLevelFiles, Metric{"rocksdb_level_files", Gauge, []string{labelLevel}, "Table files by level, of all families.", ""}},
		{rocksStopped, Metric{"rocksdb_write_stopped", Gauge, nil, "Whether commits wait for flushes or compactions: 1 or 0.", ""}},
		{rocksCacheHits, Metric{"rocksdb_block_cache_hits_total", Counter, nil, "Blocks that were found in the block cache.", ""}},
		{rocksCacheMisses, Metric{"rocksdb_block_cache_misses_total", Counter, nil, "Blocks that were read from disk.", ""}},
		{rocksStall, Metric{"rocksdb_stall_seconds_total", Counter, nil, "Time that commits were held up by RocksDB.", ""}},
		{backupLast, Metric{"backup_last_success_timestamp_seconds", Gauge, nil, "When the last backup ended well, Unix time. Absent: there was none.", "`LASTSAVE`"}},
		{backups, Metric{"backups_total", Counter, []string{labelOutcome}, "Backups by outcome: ok or failed.", ""}},
	}
}

const textBroker = "Beside these there are the `go_…` and `process_…` metrics of Prometheus' client library for Go: goroutines, memory, garbage collection, processor time, descriptors."

func brokerRows() []row {
	return []row{
		{buildInfo, Metric{"build_info", Gauge, []string{"version", "revision", "rocksdb", "goversion"}, "Always 1: the labels say what was built of what.", "`INFO server`"}},
		{certificateExpiry, Metric{"certificate_expiry_timestamp_seconds", Gauge, []string{labelListener}, "When the certificate of a listener (tls or admin) ends, Unix time.", ""}},
		{leftOut, Metric{"metrics_left_out", Gauge, []string{labelKind}, "Queues, throttles, budgets and keys that have no figures by name: kind is queue, throttle, budget or key.", ""}},
		{scrapeSeconds, Metric{"metrics_scrape_seconds", Gauge, nil, "Time that the figures of this answer took.", ""}},
		{tracingSpans, Metric{"tracing_spans_total", Counter, []string{labelOutcome}, "Spans by outcome: exported, failed (the collector refused them) or dropped (there was no room). There are none while tracing is off.", ""}},
	}
}
