// Package clients_test tries Fila with the Redis clients that people have.
//
// Each directory below has a hand: a small program that does with one library
// what it is told. Of an application that uses the library it is the part that
// matters here, from the call to what the call returns. What is to be done and
// what has to come of it is in rows_test.go, once for all languages.
//
// A hand finds the broker at FILA_HOST and FILA_PORT. FILA_RESP is the protocol
// to use, 2 or 3, or empty for the one that the library takes by itself. It
// prints the version of its library. Then it reads commands, a line each, and
// answers each with a line:
//
//   - $50494e47                          a command that is answered at once
//     500 $46494c412e4c45415345 ...        one that may wait half a second
//     0 $46494c412e4c45415345 ...          one that may wait for ever
//
//     $48656c6c6f                          a text
//     :17                                  an integer
//     _                                    nil
//     *2 :1 :2                             an array of two
//     %1 $6b $76                           a map, or what the language has for it
//     -4e4f...                             the broker's error, told from others
//     !436f...                             any other error: the connection's
//
// Texts are in hexadecimal digits. After an error of the connection a hand goes on
// with the next command; if its library does not connect again by itself, it does
// that first.
package clients_test
