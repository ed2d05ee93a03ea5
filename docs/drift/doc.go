// Package drift holds tests only: they fail when a page of this repository says
// what the code no longer says.
//
// # Promise
//
//   - Every relative link in every Markdown file leads somewhere. A link whose text
//     is code (in back quotes) leads to a file in which that code stands; one whose
//     text is a test's name, to the file that declares that test.
//   - Tables between "<!-- generated: NAME -->" and "<!-- end -->" are made from the
//     code: settings from the components' Config types, metrics from their
//     constructors, roles from the access table. `go test ./docs/drift -update`
//     writes them again.
//   - Tables written by hand (keys of etcd and Redis, headers, topics, libraries)
//     name exactly what the code names, no more and no less.
//   - Every `make` target and every `cellctl` command that a page shows exists.
//
// # Neighbours
//
// It reads sources with go/parser and imports the components for their Config types
// only. Nothing imports it.
package drift
