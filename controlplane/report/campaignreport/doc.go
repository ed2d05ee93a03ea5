// Package campaignreport is a campaign's account as people and scripts read it: live,
// and for good once the campaign settles (R-127, I10).
//
// Job: per SKU the account of report/undersell, and per cell and SKU what the shard
// counts: its stock row, requests by outcome, orders by state, refunds, findings and
// repairs, with the money. The report judges itself:
//
//	account   sale_limit = confirmed + Σ units by cause; report/undersell gives no other
//	row       granted = available + reserved + confirmed
//	ledger    the sums of its deltas are the row
//	orders    units of PAID orders = confirmed + what was restocked; units of unpaid
//	          ones = reserved. Not compared where a REVERSAL was added: a person has
//	          moved units then, and the count of reversals says so
//
// Promise: unknown is not zero. A cell that did not answer has no row here and is in
// Unread with its reason; the verdict is UNCHECKED then, unless what it had is written
// off. Amounts are exact decimals and never added over currencies.
//
// The archived form is one JSON document (docs/reference/archive.md). Schema 1, which
// has the accounts alone, is read for ever.
//
// # Neighbours
//
// report/undersell reads the shards, each in one snapshot; settle puts the report into
// the archive before anything of the campaign leaves etcd; api serves GetCampaignReport.
package campaignreport
