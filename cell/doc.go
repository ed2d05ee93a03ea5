// Package cell makes one process of a cell out of its rooms.
//
// Job: read the configuration, build every part in order, give each goroutine to one owner, and take
// all of it down in order. There is no decision about the domain here.
//
// Promise: Run returns nil after a clean drain within shutdown_grace. A store that is away when the
// process starts is waited for, visibly (readyz names it), because a cell that restarts during an
// outage must come back by itself. A process whose control plane is away sells by what its shard
// says (K71). A process never restarts itself out of a lost lease or a fence: it stops selling and
// registers again.
//
// Neighbours: cmd/cellquotad calls Run; README.md beside this file shows how the rooms fit together.
package cell
