// Package link is a cell process's stream to the control plane: registration, lease, reports up,
// directives down.
//
// Job: keep one stream to the leader, and turn what it says into the shard's words.
//
// # Promise
//
//   - A lease says who is probably alive, never who may sell: that is the shard's fence row. A stream
//     that ends, a lease that lapses, a control plane that is gone take nothing away from a process
//     (except from campaigns with on_lease_loss PAUSE). Only a refusal by name does: FENCED,
//     OTHER_GROUP and REGRESSED drop the writer (K39, K71).
//   - While no replica answers, a process without a writer takes its shard's ACTIVE row under its own
//     group; never a SETTLE_ONLY or FENCED one, and never when a mirror has seen a higher version or
//     another shard.
//   - Every directive is idempotent by its id. One that failed for now has no result and is sent
//     again by the leader; one that was decided gets its result again every time.
//   - Facts are read after the term row was raised and that was committed. A usage report is absolute,
//     of one fence version, and never behind one sent before it on the same stream (K57).
//
// # In order
//
//	dial → Hello (fence row, term, identity, reporter?) → Welcome: SetWriter │ Refusal: classify
//	     → RaiseTerm → TermRaised      (the reporter)
//	     → KeepAlive ⇄ KeepAliveAck    every link.keepalive
//	     → Report                      every report.interval, changed SKUs; none: what was told still stands
//	     → Directive → apply → DirectiveResult, one after the other
//	     → CampaignAck                 whenever a campaign's readiness changed
//	any end → back-off with jitter → dial another replica
//
// # Goroutines of one stream
//
// A receiver, a worker that applies directives in the order in which they came, a reporter, and a
// sender, the only one that writes and one that waits for no store. They share one context; the first
// to fail ends the others, and the loop waits for all four.
//
// # Neighbours
//
// controlplane/link at the other end; cell/shard and cell/admission carry out; cell/campaigns has the
// rules; cell/api asks Standing whether it may sell.
package link
