// Package shardtest gives tests of the cell's other rooms a real shard: migrated, provisioned as
// cell-1 under the group blue, with one campaign "c" of one SKU "s" at 10.00 EUR, and a clock that
// stands still until the test moves it.
//
// Promise: what a test gets is made by the shard's own verbs, so it is a state that a cell can be in.
// The test's superuser connection is for looking, and for what no verb does (the clock).
package shardtest
