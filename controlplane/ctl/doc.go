// Package ctl is cellctl: its commands as functions over the control plane's services and a writer.
//
// Job: read flags and files, ask the control plane as the role that the command needs, wait for what
// takes long, show the answer in the shape that was asked for, and end with the exit code that says
// what happened.
//
// Promise:
//   - exit codes come from one table (exit.go), errors say what, why and what to do (problem.go);
//   - every mutation has an operation id before its first try. It is printed, so that whoever loses
//     the answer can repeat the command with --operation-id and get the same result; a try that was
//     not answered is repeated under it, a bounded number of times;
//   - nothing is asked twice of a person, and nothing at all unless both sides are a terminal.
//
// Files: program.go (entry), session.go (connection, calls), mutation.go, wait.go, then one file per
// noun of the command line.
//
// Neighbours: ctl/target finds the platform, ctl/render shows answers, ctl/oracle judges histories,
// ctl/demo is the story that `dev demo` tells; cmd/cellctl is the program.
package ctl
