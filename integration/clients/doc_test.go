// Package clients_test tests Fila with common Redis clients.
//
// Each directory below contains a hand: a small program that executes commands with one library as
// instructed. It stands for an application, from the call to the library to what the call returns.
// The commands and the expected results are in rows_test.go, once for all languages.
//
// A hand connects to FILA_HOST and FILA_PORT. FILA_RESP is the protocol to use, 2 or 3, or empty
// for the library's default. With several nodes, FILA_MODE is cluster or sentinel, and FILA_NODES are the
// addresses of the ports of that mode, separated by commas. It prints the version of its library, then reads commands, one per
// line, and answers each with a line:
//
//   - $50494e47                          a command that is answered immediately
//     500 $46494c412e4c45415345 ...        one that may block for half a second
//     0 $46494c412e4c45415345 ...          one that may block forever
//
//     $48656c6c6f                          a text
//     :17                                  an integer
//     _                                    nil
//     *2 :1 :2                             an array of two
//     %1 $6b $76                           a map, or the language's equivalent
//     -4e4f...                             an error of the broker
//     !436f...                             any other error: of the connection
//
// Texts are in hexadecimal. After an error of the connection a hand continues with the next
// command; if its library does not reconnect by itself, the hand does so first.
package clients_test
