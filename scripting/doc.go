// Package scripting runs the hooks that operators load into queues: small Lua programs
// that decide how a message is scheduled and what happens to it when it fails. It
// implements engine.Scripts. For every script, whatever it contains, these hold:
//
//  1. It terminates. Each instruction of the machine and each step of a library
//     function is taken from one budget, and the clock is checked as the budget is
//     spent. When instructions or time run out the script fails, and no pcall
//     catches that. Slow scripts yield the CPU (slot.go); the time that loading
//     takes is bounded (loading.go).
//  2. Its memory is bounded. Allocations are charged before they are made,
//     garbage included. Call depth and stack size are bounded as well.
//  3. It is a pure function of message, settings, source and the signals that it
//     reads: no file, network, clock, random number, goroutine or other message.
//     Equal inputs lead to equal decisions.
//  4. It keeps no state. Each call runs the whole script in an environment of its
//     own, and a machine that has seen an error is discarded.
//  5. Its result is validated completely before it is used.
//
// gopher-lua itself provides only the first. The others are implemented as follows:
//
//   - The syntax tree is rewritten before compilation (rewrite.go). Operations that
//     can allocate without bound, such as `..` and assignments to fields, become
//     calls of guard functions; allocations of a known size, such as `{}` and
//     `function`, are charged by a call at the head of their block. Guards are
//     stored in the constants of the compiled program (program.go), where no script
//     can reach them.
//   - The library is this package's own (base.go, strings.go, ...): it charges its
//     allocations, its pattern matcher counts its steps, and nothing else is
//     reachable.
//   - The library is one set of tables shared by all machines and read-only. All
//     writes to tables go through one function (tables.go), which refuses these.
//
// What happens after a failure is the engine's decision.
package scripting
