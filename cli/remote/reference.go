package remote

// Introduction is what docs/reference/cli.md says before it lists the commands, in Markdown.
func Introduction() string {
	return `One binary is both the broker and the tool to work with it. ` + "`fila`" + ` alone is the broker; most other commands talk to
one that runs, on this machine or elsewhere. ` + "`fila COMMAND --help`" + ` says what is below.

## Where the broker is

| | |
|---|---|
| ` + "`--url`, `-u`, or `FILA_URL`" + ` | ` + "`fila://user:password@host:port`, or `filas://` with TLS; `redis://` and `rediss://` mean the same" + ` |
| ` + "`--addr host:port`, `--user name`" + ` | in place of parts of the URL; ` + "`127.0.0.1:5555` and `default`" + ` without either |
| ` + "`--tls`, `--cacert file`, `--cert file`, `--tls-key file`" + ` | TLS, the certificates to trust, and the client's own |
| ` + "`FILA_AUTH__PASSWORD`" + ` | the password, if the URL has none. On a terminal it is asked for. There is no flag for it: other users of the machine can read arguments |

## Output

` + "`-o`, `--output`" + ` chooses a form:

| form | for |
|---|---|
| ` + "`table`" + ` | people: columns with a heading, times in the local zone, durations and shares in words. The default on a terminal. ` + "`NO_COLOR`" + ` turns colours off |
| ` + "`plain`" + ` | ` + "`cut`, `awk`" + ` and the like: the same columns separated by tabs, without a heading, values as on the wire. The default elsewhere |
| ` + "`json`" + ` | programs: one document with all fields |
| ` + "`jsonl`" + ` | programs that read as it comes: a document on each line |

Fields have the names that they have [on the wire](../../redis-compat.md) in all forms. Control characters and bytes that are not
UTF-8 are escaped in ` + "`table` and `plain`" + `; in JSON, text that is not UTF-8 is ` + "`{\"base64\": \"...\"}`" + `.

## Exit codes

| code | |
|---|---|
| 0 | done; an empty list too |
| 1 | refused, or no broker answers |
| 2 | asked wrongly: an unknown command or flag, a value that cannot be |
| 3 | something that was named is not there, whichever command names it; ` + "`queues plan`" + ` would change something; ` + "`doctor`" + ` has findings |

A list may be empty, and a queue may have no messages: that is 0. What an argument names is there or not: a queue, a message, a hook,
a version of a hook, a throttle, the hold of a throttle, a topic, a subject with signals, a fairness key with messages or settings.

An error is one line on standard error. What cannot be undone asks first on a terminal, and needs ` + "`--yes`" + ` elsewhere.
` + "`fila completion SHELL`" + ` completes commands, flags, and names that it asks the broker for; ` + "`fila man DIR`" + ` writes manual pages.
`
}

// Common says whether a flag is one that all commands of a broker have; the introduction
// describes them.
func Common(flag string) bool {
	switch flag {
	case "url", "addr", "user", "tls", "cacert", "cert", "tls-key", "output", "help":
		return true
	}
	return false
}
