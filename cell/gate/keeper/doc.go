// Package keeper drives the gates: it reads the mirror, steps the pure machine of
// package gate, and writes what came out back into the mirror.
//
// # Promise
//
//   - One look per interval and SKU; the script refuses by what the last look wrote.
//   - What a process knows about itself alone (its own database is gone) is shown in
//     its View, by which its API refuses, and not written: the cell's other processes
//     may be well. A mirror that is away or being rebuilt is PAUSED, never sold out.
//   - One process of the cell writes (Leads: a lock of the shard); the others judge as well, so that
//     whoever is elected next goes on where the gate stands.
//   - The metrics of the gate (contract §7) show what the last look saw.
//
// # Neighbours
//
// gate decides; admission is the mirror; the frame says which SKUs there are and
// what this process measures of its dependencies.
package keeper
