// Package topic has the topics: names under which a message is published to several queues, those that are bound to it.
// A binding may ask for headers of a message. The package knows no queues, messages, stores or batches.
//
// A topic exists while it has bindings. Its bindings are an immutable list: each change makes a new one, which other
// goroutines find in the [View]. Two lists are the same if and only if their pointers are. A publish goes like this:
//
//	on a connection  b = view.Bindings(name)
//	                 one request for each queue of b.Matching(headers)
//	in a turn        if View().Bindings(name) is another list by now, the requests are made again
//	                 Published(name, whether a queue has met it, how many have stored it)
//
// # Glossary
//
//	topic                 a name under which a message is published to several queues
//	binding               a queue that gets the messages of a topic, with its conditions
package topic
