package sqs

// action carries out a request: decode fills the struct of its parameters. A result of nil is an empty reply.
type action func(c *call, decode func(any) error) (any, error)

// with is an action with parameters of type I and a result.
func with[I, O any](do func(*call, *I) (*O, error)) action {
	return func(c *call, decode func(any) error) (any, error) {
		in := new(I)
		if err := decode(in); err != nil {
			return nil, err
		}
		out, err := do(c, in)
		if err != nil || out == nil {
			return nil, err
		}
		return out, nil
	}
}

// without is an action that has no result.
func without[I any](do func(*call, *I) error) action {
	return with(func(c *call, in *I) (*struct{}, error) { return nil, do(c, in) })
}

// refused is an action that Fila has in another form.
func refused(instead string) action {
	return func(*call, func(any) error) (any, error) { return nil, unsupportedOperation.of("%s", instead) }
}

// actions are the actions by their names.
func actions() map[string]action {
	const rights = "rights are those of the broker's users, see ACL SETUSER"
	return map[string]action{
		"CreateQueue":                  with(createQueue),
		"GetQueueUrl":                  with(getQueueURL),
		"ListQueues":                   with(listQueues),
		"DeleteQueue":                  without(deleteQueue),
		"PurgeQueue":                   without(purgeQueue),
		"GetQueueAttributes":           with(getQueueAttributes),
		"SetQueueAttributes":           without(setQueueAttributes),
		"ListDeadLetterSourceQueues":   with(listDeadLetterSourceQueues),
		"TagQueue":                     without(tagQueue),
		"UntagQueue":                   without(untagQueue),
		"ListQueueTags":                with(listQueueTags),
		"SendMessage":                  with(sendMessage),
		"SendMessageBatch":             with(sendMessageBatch),
		"ReceiveMessage":               with(receiveMessage),
		"DeleteMessage":                without(deleteMessage),
		"DeleteMessageBatch":           with(deleteMessageBatch),
		"ChangeMessageVisibility":      without(changeVisibility),
		"ChangeMessageVisibilityBatch": with(changeVisibilityBatch),
		"StartMessageMoveTask":         with(startMove),
		"ListMessageMoveTasks":         with(listMoves),
		"CancelMessageMoveTask":        with(cancelMove),
		"AddPermission":                refused(rights),
		"RemovePermission":             refused(rights),
	}
}
