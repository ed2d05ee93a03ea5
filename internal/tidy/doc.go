// Package tidy is the house rules as a test: what docs/ARCHITECTURE.md and
// CONTRIBUTING.md ask for, checked over the whole repository in seconds, with a
// word on what to write instead.
//
// # Rules
//
// Rules lists them; each has a law in a sentence. The import law is a table,
// rooms in law.go: one row a room, what it may import of ours, and whether it is
// pure. A folder without a row is a violation, so a new room begins with a
// decision about its neighbours.
//
// # Promise
//
//   - Check reads and parses; it neither compiles nor runs anything, and does not
//     depend on the machine.
//   - Every violation names file, line and rule and says what to write instead.
//   - Every rule is shown able to fail: its test gives it a source that breaks it
//     and one that does not.
//
// A rule is a heuristic about text. Where it is wrong, change the rule (and its
// test), not the code around it: there is no marker that switches a rule off.
//
// # Neighbours
//
// None. `make lint` and `make test` run it.
package tidy
