// Package scripting runs the hooks that operators load into queues: small Lua
// programs that say how a message is scheduled and what becomes of it when it
// fails. Whatever a script does, these hold:
//
//  1. It ends. Every instruction of the machine, and every step of the library,
//     is taken from one budget, and the clock is read as it is spent. When the
//     budget or the time is gone the script fails, and nothing in it can catch
//     that. Scripts that take long leave a processor to everybody else (lane.go),
//     and so does loading one (pace.go).
//  2. It fits. What it allocates is counted before it is allocated, garbage
//     included, and the count has a bound. Depth of calls and size of the stack
//     are bounded as well.
//  3. It sees nothing but its message, its settings and itself: no file, network,
//     clock, chance, goroutine or other message. The same message and settings
//     lead to the same decision.
//  4. It leaves nothing behind. Each message runs the whole script anew, in an
//     environment of its own; a machine that has seen an error is thrown away.
//  5. What it returns is checked to the last field before anybody acts on it.
//
// gopher-lua provides for the first only. How the others are made to hold:
//
//   - Before a script is compiled its syntax tree is rewritten (rewrite.go):
//     what can grow without bound, as `..` and assignments to fields, becomes a
//     call of a function of ours, and what allocates a known amount, as `{}` and
//     `function`, is announced by a call at the head of its block. These
//     functions are put into the constants of the compiled program (program.go),
//     where no script can reach them.
//   - The library is ours from the first function to the last (base.go,
//     strings.go, ...): it charges what it allocates, its pattern matcher counts
//     its steps, and what it does not have cannot be reached by any path.
//   - It is one set of tables shared by all machines, so no script may write to
//     it: there is one place that writes to tables (tables.go), and it refuses.
//
// It does not decide what happens after a failure: that is the engine's.
package scripting
