// Package boot brings a local platform up, tells when it is ready, and takes it
// down.
//
// Job: carry out a layout.Plan with a supervise.Supervisor:
//
//	etcd ──────────────────────────► control plane ──► edges
//	                                       │
//	PostgreSQL ──► database, schema, roles ┤
//	redis-server ──────────────────────────┼──► cell provisioned ──► cell's processes
//	Kafka ─────────────────────────────────┘
//
// Replicated, a Redis replica and then the sentinels follow the redis-server, and the standby is copied
// from PostgreSQL and streams before the database is made: without it nothing commits.
//
// etcd's members are one box: they start together. Everything that no arrow keeps back runs at the same time; each cell goes its
// own way. When all is ready, endpoints.json is written.
//
// Promise:
//
//   - Boot stops at the first thing that fails, says which with the end of its
//     log, and leaves nothing running.
//   - One platform per data directory: the second is refused.
//   - endpoints.json is there exactly while the platform is ready, always with
//     the present process ids. (A supervisor that was killed cannot remove it;
//     the next start does.)
//   - A data directory can be started again and again, also after any part of a
//     start was cut off: each step finds out what is there already.
//
// Neighbours: `cellquota-dev up` calls Run. The cells' schema is cellquotad's
// (`cellquotad migrate`), the cells' records are the control plane's (`cellctl
// cell provision`); boot runs those programs and looks into neither.
package boot
