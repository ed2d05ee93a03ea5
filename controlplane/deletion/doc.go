// Package deletion removes what is left of a settled campaign from etcd: its
// journal records, its books, its route.
//
// The intent (intent.DeleteCampaign) has, in one transaction, put the tombstone,
// removed the campaign's record and begun an operation. From then on nobody sells,
// grants or compares by it: a shard's rows outlive the books, and planner.Compare
// passes over campaigns with a tombstone. What is left is many keys and no hurry.
//
//	records → books → route → DONE
//
// Each step is one transaction of at most batch keys, conditional on leading and on
// the operation standing where it stood, so that any leader goes on where the last
// one ended. The tombstone stays for ever.
//
// Neighbours: planner hands the operation over; store carries out; the view finds
// the keys, and a view that is late finds keys that are gone, which is no fault.
package deletion
