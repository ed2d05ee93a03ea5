// Package secretfile reads small files that hold a secret: an address with a
// password, a password, a key.
//
// Job: names of such files come from configuration and from records that people
// change, so a name may be wrong in any way, or meant badly. What is named is read
// only when it is a small regular file: a device or a huge file would fill the
// process, and a FIFO that nobody writes would hold it up for ever.
//
// Promise: no error and no text of this package holds a byte of a file, and whoever
// parses what was read must not tell the parser's words to others either: drivers
// repeat what they cannot parse.
//
// Neighbours: controlplane/check, reclaim and report/shards read cells' files by it.
package secretfile
