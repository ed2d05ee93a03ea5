// Package campaigns holds the rules of campaigns as a cell's processes serve by them.
//
// Job: read from the shard what the control plane had installed there, and give everybody in the
// process one immutable snapshot. The shard is the source, not the link: a process restarted while
// the control plane is gone sells by the same rules (K71).
//
// Promise: Current never blocks; a campaign whose rules cannot be read is named in Faults and hides
// no other (K43). A reader that failed keeps the last snapshot and its age grows.
//
// Neighbours: cell/link installs rules, cell/api, cell/rebuild and cell/gate ask for them.
package campaigns
