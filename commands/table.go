package commands

// table is every command there is, in alphabetical order. A new command is a new
// row here and a file of its own.
func table() []Spec {
	return []Spec{
		auth(),
		client(),
		cluster(),
		commandTable(),
		config(),
		dbsize(),
		echo(),
		ack(),
		configValues(),
		enqueue(),
		explain(),
		extend(),
		key(),
		keys(),
		lease(),
		mlease(),
		nack(),
		queue(),
		redrive(),
		release(),
		script(),
		stats(),
		throttle(),
		hello(),
		info(),
		latency(),
		module(),
		ping(),
		quit(),
		readonly(),
		readwrite(),
		reset(),
		selectDB(),
		shutdown(),
		slowlogCommand(),
		timeNow(),
	}
}
