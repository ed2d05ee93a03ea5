// Package check looks at a cell's Redis, Kafka, PostgreSQL, clocks and processes
// and names everything that is not as a cell needs it.
//
// Job: an operator asks before a cell is provisioned, before a sale, and at three in
// the morning. The answer lists every look, with what was seen and, where that is a
// fault, the rule and what to do. It never stops at the first fault.
//
// Promise: nothing is changed: no statement here writes, no topic or key is made.
// Each part is looked at under a deadline of its own and side by side, so that one
// that hangs costs its own answer only. No finding holds a secret: addresses are read
// from files and named by their files; of a failed connection the class is told, not
// the driver's text. A file is read only when it is regular and small (internal/secretfile). Who
// may have which file read is api's to say.
//
// What is looked at:
//
//	redis     every server: reachable, version, mode, role, maxmemory-policy, appendonly
//	kafka     every broker named: reachable; topic: partitions, replicas, in-sync replicas,
//	          min.insync.replicas, cleanup.policy, max.message.bytes, retention; events topic
//	shard     reader and fencer connect, under roles that can do no more than theirs;
//	          schema step; the app role's privileges; fence row; primary; synchronous commit
//	clocks    Redis TIME and the shard's clock against ours and each other; time on the way
//	          is not counted
//	process   live processes of the group, roles covered, readiness faults
//
// The app role's own file is not read: only cells have it. Redis functions are the
// processes' affair, which load them.
//
// Neighbours: api renders the findings; the spec and the record come from core.
package check
