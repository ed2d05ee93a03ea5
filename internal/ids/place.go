package ids

import "github.com/cespare/xxhash/v2"

// Buckets is the number of hash buckets of a traffic domain, the unit of routing.
const Buckets = 4096

// Bucket is the bucket of a user, from 0 to Buckets − 1: XXH64 with seed 0 over
// the id's bytes, modulo Buckets. Never change it: the map from bucket to cell is
// frozen at publish, and one order per user rests on it (I4).
func Bucket(user UserID) uint16 {
	return uint16(xxhash.Sum64String(string(user)) % Buckets)
}

// Partition is the partition, from 0 to n − 1, that carries every admission of a
// SKU, so that its stock row has one writer. n is the topic's partition count; a
// count below 1 is a mistake of the program and panics.
func Partition(campaign CampaignID, sku SKUID, n int) int32 {
	if n < 1 {
		panic("ids.Partition: a topic has at least one partition")
	}
	return int32(xxhash.Sum64String(string(campaign)+"/"+string(sku)) % uint64(n))
}
