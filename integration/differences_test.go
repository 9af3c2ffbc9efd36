package integration_test

// differences lists where Fila's replies differ from Redis' and why, by conversation and utterance,
// or by conversation alone where replies cannot be matched to commands.
func differences() map[string]string {
	const (
		whole           = "a HELLO that is refused changes nothing"
		unauthenticated = "an unauthenticated client does not learn which commands exist, nor their syntax"
		arity           = "arity is computed from the arguments: too many are too many"
		newer           = "newer clients send it, Redis has it since 7.2"
		oneDB           = "there is one database"
		own             = "the value is Fila's own"
		harmless        = "harmless here, and cluster clients send it to every server"
		early           = "arguments are read when a command is queued: what cannot succeed is not queued, and the transaction is refused whole"
		look            = "who may look at a queue may ask for it: the flags do not say that it needs access to what is in it"
		category        = "what it costs everybody is for administrators to cause"
	)
	return map[string]string{
		"hello: > CLIENT GETNAME": whole,

		"password: strangers: > NOSUCH": unauthenticated,
		"password: strangers: > GET":    unauthenticated,

		"auth without a password: > AUTH a b c": arity,
		"slow log: > SLOWLOG GET 1 2":           arity,

		"select: > SELECT 1":                                             oneDB,
		"settings: > CONFIG GET save databases":                          oneDB,
		"names of clients: > CLIENT SETINFO LIB-NAME x":                  newer,
		"names of clients: > CLIENT NO-TOUCH ON":                         newer,
		"names of clients: > CLIENT CAPA redirect":                       "libraries for Valkey ask for it",
		"lists of clients: > CLIENT INFO":                                "of Redis' fields those that mean something here, and those of 7.2 for libraries",
		"commands: > COMMAND INFO cluster":                               "of its subcommands those that are about nodes",
		"commands: > COMMAND INFO command":                               "of its subcommands those that clients send",
		"rules of users: > ACL SETUSER u +select|0":                      "there are no rules for a first argument",
		"commands: > COMMAND INFO multi":                                 "a transaction needs the engine, which is not there while it loads",
		"commands: > COMMAND INFO subscribe":                             "it is refused in MULTI, as it answers later on too",
		"commands: > COMMAND INFO psubscribe":                            "it is refused in MULTI, as it answers later on too",
		"commands: > COMMAND INFO unsubscribe":                           "it is refused in MULTI, as it answers later on too",
		"commands: > COMMAND INFO punsubscribe":                          "it is refused in MULTI, as it answers later on too",
		"commands: > COMMAND INFO monitor":                               "it is refused in MULTI, as it answers later on too",
		"commands: > COMMAND INFO exec":                                  "it writes, and waits for the engine",
		"commands: > COMMAND INFO discard":                               "nothing of Fila's is busy with a script",
		"commands: > COMMAND INFO ttl":                                   look,
		"commands: > COMMAND INFO pttl":                                  look,
		"settings: > CONFIG GET SAVE save":                               "a setting's name is answered in lower case",
		"settings: > CONFIG GET appendonly":                              own,
		"settings: > CONFIG SET slowlog-max-len -1":                      "the slow log is bounded",
		"settings: > CONFIG SET loglevel loud":                           "Fila's own levels are levels too",
		"settings: > CONFIG SET daemonize no":                            "Fila has no such setting",
		"settings: > CONFIG SET maxclients 10000":                        "it takes a restart",
		"settings: > CONFIG REWRITE":                                     "Fila does not write its configuration",
		"settings: > CONFIG GET slowlog-log-slower-than slowlog-max-len": own,

		"keys: > SCAN -1":    "no cursor is below zero",
		"roles: > WAIT 0 x":  "a number that is none is refused in one way",
		"roles: > READONLY":  harmless,
		"roles: > READWRITE": harmless,

		"transactions: > SELECT x": early,
		"transactions: > EXEC":     early + "; and an EXEC with arguments does not end it",
		"transactions: > EXEC x":   "an EXEC that is not one does not end the transaction",
	}
}
